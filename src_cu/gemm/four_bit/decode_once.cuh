// Packed weights decoded once for all tokens, by way of a workspace. A product of many tokens needs every weight in many tiles, and what
// lanes do to decode it takes tensor cores' time each time. So some warps of each CTA, the decoders, turn packed weights into e4m3 as
// wgmma reads them, and all CTAs copy their tiles from there, from L2.
//
//     decoders       claim a unit by a ticket, 128 weights and 128 of K; decode it into the workspace; say that it is ready; and go on, no more
//                    than so many units before those that their CTA multiplies
//     copying warp   waits until a unit is ready, then copies it into a stage, 16 KB as they lie
//
// Who claims waits for nothing but tiles of its own CTA, which want units before its own. The workspace may hold anything: CTA 0 clears tickets
// and marks, and the others learn of it: CTA 0 changes `beat` until all have seen it change. So two of the grid's CTAs at least must find
// room at a time, and more need not.
#pragma once

#include <climits>
#include <cstdint>

#include "common/matrix_store.cuh"
#include "gemm/four_bit/decoded_tile.cuh"
#include "gemm/four_bit/finish.cuh"
#include "gemm/four_bit/load.cuh"
#include "gemm/schedule/claims.cuh"

namespace zoo {

// The workspace: units, column of tiles after column, along K, each as a stage of shared memory has it; then the claims. Units are claimed in
// the order in which CTAs that begin together want them: of as many columns as run at a time, all that begin K, and so on.
struct DecodedSpace {
    static constexpr int UNIT_BYTES = 128 * 128, UNITS_AHEAD = 1024;  // 16 MB, which stay in L2

    uint8_t* weights;
    int columns, stages, width;  // tiles of 128 weights; units along K; how many columns run at a time
    Claims claims;

    __device__ __forceinline__ DecodedSpace(uint8_t* first, int columns, int stages, int width)
        : weights(first), columns(columns), stages(stages), width(width),
          claims{reinterpret_cast<uint32_t*>(first + int64_t(columns) * stages * UNIT_BYTES)} {}
    __device__ __forceinline__ void find(int unit, int& column, int& stage) const {
        const int band = unit / (width * stages), first = band * width, own = min(width, columns - first);
        unit -= first * stages;
        stage = unit / own;
        column = first + unit - stage * own;
    }
};

// By a warp, beside others of its CTA: a unit is two pieces of 64 weights, each with a place for its packed bytes. A place is filled for the
// next unit as soon as it has been decoded. Who has claimed a unit may wait for its own CTA's tiles, which need none that comes after.
template <class Tile>
struct Decoder {
    static constexpr int PIECE_BYTES = CHUNK_ROWS * 128;  // decoded

    Tile& tile;
    const PackedMatrices& b;
    const DecodedSpace space;
    const int index;  // of the CTA's decoders
    uint32_t parity = 0;

    static __device__ __forceinline__ int lane_anew() { return thread_index_anew() % 32; }

    __device__ __forceinline__ void run() {
        const int units = space.columns * space.stages;
        if (index == 0) begin_claims(space.claims, units, lane_anew(), [&] { arrive(&tile.decoding.cleared); });
        wait(&tile.decoding.cleared, 0);
        auto claim = [&] { return lane_anew() == 0 ? increment(space.claims.next()) : 0; };
        uint32_t claimed = claim();
        int unit = __shfl_sync(0xFFFFFFFF, claimed, 0), column = 0, stage = 0;
        if (unit < units) space.find(unit, column, stage);
        for (int height = 0; height < Tile::HEIGHTS; height++) load(unit < units, column, stage, height);
        while (unit < units) {
            claimed = claim();  // it is there when it is wanted
            while (unit - DecodedSpace::UNITS_AHEAD >= tile.decoding.get_progress()) __nanosleep(200);
            const uint32_t place = column * space.stages + stage;
            const bool has_second = column * Tile::HEIGHTS + 1 < b.tiles;
            const int chunks = b.chunks - stage * Tile::CHUNKS;
#pragma unroll 1
            for (int height = 0; height < Tile::HEIGHTS; height++) {
                wait(&tile.decoding.full[index][height], parity);
                decode(height, height == 0 || has_second ? chunks : 0,
                       space.weights + (int64_t(place) * 2 + height) * PIECE_BYTES);
                __syncwarp();  // all have read what comes next overwrites
                if (height == 0) {
                    unit = __shfl_sync(0xFFFFFFFF, claimed, 0);
                    if (unit < units) space.find(unit, column, stage);
                }
                load(unit < units, column, stage, height);
            }
            parity ^= 1;
            order_copies();
            __syncwarp();
            if (lane_anew() == 0) store_release(space.claims.ready(place), 1);
        }
    }

   private:
    __device__ __forceinline__ void load(bool exists, int column, int stage, int height) const {
        if (lane_anew() > 0 || !exists) return;
        const int tile_of_b = column * Tile::HEIGHTS + height, chunk = stage * Tile::CHUNKS;
        const uint32_t bytes = tile_of_b < b.tiles ? max(min(b.chunks - chunk, Tile::CHUNKS), 0) * Tile::CHUNK_BYTES : 0;
        Barrier* full = &tile.decoding.full[index][height];
        arrive_expecting_bytes(full, bytes);
        if (bytes > 0)
            load_bytes(tile.decoding.packed[index][height], b.first + (int64_t(tile_of_b) * b.chunks + chunk) * Tile::CHUNK_BYTES,
                       bytes, full);
    }

    // 16 weights after 16: words as a product from registers would take them lie in shared memory for a moment, by stmatrix, as rows of 128
    // bytes with the swizzle. `chunks`: how many there are from here on; others are zeros.
    __device__ __forceinline__ void decode(int height, int chunks, uint8_t* target) const {
        const uint32_t table = shared_address(tile.table), packed = shared_address(tile.decoding.packed[index][height]);
        uint8_t* rows = tile.decoding.rows[index];
        const int lane = lane_anew();
#pragma unroll 1
        for (int round = 0; round < CHUNK_ROWS / 16; round++, target += 16 * 128) {
            const int thread = round * 32 + lane;
            PackedWeights words[Tile::CHUNKS];
#pragma unroll
            for (int chunk = 0; chunk < Tile::CHUNKS; chunk++) {
                const uint32_t from = packed + chunk * Tile::CHUNK_BYTES;
                words[chunk] = load_packed(from + thread * 16,
                                           from + CODE_BYTES + (Tile::FORMAT == Weights::nvfp4 ? thread * 2 : thread / 2 * 2),
                                           chunk < chunks);
            }
            __syncwarp();  // the rows before have been read
#pragma unroll
            for (int chunk = 0; chunk < Tile::CHUNKS; chunk++) {
                uint32_t decoded[8];
                unpack(words[chunk], look_up(words[chunk], table), decoded);
#pragma unroll
                for (int s = 0; s < 2; s++)
                    store_matrices(rows + lane % 16 * 128 + (chunk * 4 + s * 2 + lane / 16 ^ lane % 8) * 16,
                                   {decoded[4 * s], decoded[4 * s + 1], decoded[4 * s + 2], decoded[4 * s + 3]});
            }
            __syncwarp();
#pragma unroll
            for (int i = 0; i < 4; i++)
                reinterpret_cast<uint4*>(target)[i * 32 + lane] = reinterpret_cast<const uint4*>(rows)[i * 32 + lane];
        }
    }
};

// By a warp: decoded weights and tokens, which tile they are of, and its weights' factors.
template <class Tile, class Order, class Operands>
__device__ __forceinline__ void load_decoded(Tile& tile, Order order, const Operands& operands, const DecodedSpace& space,
                                             const FourBitResult<Tile::FORMAT>& d, int lane) {
    wait(&tile.decoding.cleared, 0);  // before that `ready` is anything
    Ring<Tile::STAGES> ring;
    int slot = 0, turn = 0;  // the CTA's tiles so far: all CTAs begin as many at about the same time
    Work work, next;
    for (bool more = order.next(work); more; work = next, turn++) {
        more = order.next(next);
        const int64_t first = int64_t(work.weight / Tile::WEIGHTS) * space.stages;
        uint32_t ready = 0;  // a bit for each of 32 stages
#pragma unroll 1
        for (int stage = 0; stage < space.stages; stage++) {
            if (stage % 32 == 0) ready = 0;
            if (lane == 0) tile.decoding.set_progress((turn * space.stages + stage) * space.width);
            while (!(ready >> stage % 32 & 1)) {
                const int own = stage / 32 * 32 + lane;
                ready = __ballot_sync(0xFFFFFFFF, own < space.stages && load_acquire(space.claims.ready(first + own)) == 1);
                order_copies();
                __syncwarp();  // lane 0 copies what another lane has acquired
            }
            tile.wait_until_empty(ring);
            if (stage == 0) {
#pragma unroll 1
                for (int i = lane; i < Tile::WEIGHTS; i += 32) {
                    const int at = min(work.weight + i, d.columns - 1);
                    tile.columns[slot][i] = make_float2(d.factor(at), d.bias != nullptr ? d.bias_of(at) : 0.0f);
                }
                __syncwarp();
            }
            if (lane == 0) {
                if (stage == 0) tile.announced[slot] = {work.token, work.weight, work.end_token, work.group, more};
                arrive_expecting_bytes(&tile.full[ring.stage], operands.token_rows * 128 + DecodedSpace::UNIT_BYTES);
                load_bytes(tile.weights[ring.stage], space.weights + (first + stage) * DecodedSpace::UNIT_BYTES,
                           DecodedSpace::UNIT_BYTES, &tile.full[ring.stage]);
                operands.load_tokens(tile, ring.stage, work, stage * Tile::CHUNKS);
            }
            __syncwarp();
            ring.advance();
        }
        slot = slot + 1 == Tile::COLUMNS ? 0 : slot + 1;
    }
    if (lane == 0) tile.decoding.set_progress(INT_MAX);
}

}  // namespace zoo
