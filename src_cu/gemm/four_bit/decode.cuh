// From packed weights to e4m3 where wgmma reads them: 128 bytes of K of each row, with the swizzle of 128 bytes. What lanes have of a row lies
// in four words as a product from registers would take them, 16 bytes of four lanes side by side: just what stmatrix stores.
#pragma once

#include <cstdint>

#include "common/matrix_store.cuh"
#include "gemm/four_bit/decoded_tile.cuh"
#include "gemm/four_bit/finish.cuh"
#include "gemm/four_bit/load.cuh"

namespace zoo {

// By four warps, each 16 of every 64 rows, where there is a tile at all; who copies says which, and whether there are more.
template <class Tile>
__device__ __forceinline__ void decode_weights(Tile& tile, int blocks, const PackedMatrices& b,
                                               const FourBitResult<Tile::FORMAT>& d, int thread) {
    constexpr int UNITS = Tile::HEIGHTS * Tile::CHUNKS;
    const uint32_t table = shared_address(tile.table);
    const int lane = thread % 32, row = thread / 32 * 16 + lane % 16;
    Ring<Tile::STAGES> ring;
    Ring<Tile::Decoding::PACKED> packed;
    Ring<Tile::COLUMNS> slot;
    for (bool more = true; more; slot.advance()) {
        wait(&tile.decoding.full[packed.stage], packed.parity);
        const AnnouncedTile& work = tile.announced[slot.stage];
        more = work.more;
        const int column = min(work.weight + thread, d.columns - 1), heights = b.tiles - work.weight / CHUNK_ROWS;
        const auto of_group = d.of(work.group);
        tile.columns[slot.stage][thread] =
            make_float2(of_group.factor(column), d.bias != nullptr ? of_group.bias_of(column) : 0.0f);
#pragma unroll 1
        for (int chunk = 0; chunk < blocks * Tile::CHUNKS; chunk += Tile::CHUNKS) {
            wait(&tile.decoding.full[packed.stage], packed.parity);
            const uint32_t codes = shared_address(tile.decoding.packed[packed.stage]) + thread * 16;
            const uint32_t scales = shared_address(tile.decoding.packed[packed.stage]) + CODE_BYTES +
                                    (Tile::FORMAT == Weights::nvfp4 ? thread * 2 : thread / 2 * 2);
            auto load = [&](int unit) {
                const bool exists = unit / Tile::CHUNKS < heights && chunk + unit % Tile::CHUNKS < b.chunks;
                return load_packed(codes + unit * Tile::CHUNK_BYTES, scales + unit * Tile::CHUNK_BYTES, exists);
            };
            PackedWeights next = load(0);
            tile.wait_until_empty(ring);
            uint8_t* to = tile.weights[ring.stage] + row * 128;
#pragma unroll
            for (int unit = 0; unit < UNITS; unit++) {
                const PackedWeights words = next;
                const Entries entries = look_up(words, table);
                if (unit + 1 < UNITS) next = load(unit + 1);
                uint32_t decoded[8];
                unpack(words, entries, decoded);
#pragma unroll
                for (int s = 0; s < 2; s++) {
                    const int piece = unit % Tile::CHUNKS * 4 + s * 2 + lane / 16;
                    store_matrices(to + unit / Tile::CHUNKS * (CHUNK_ROWS * 128) + (piece ^ row % 8) * 16,
                                   {decoded[4 * s], decoded[4 * s + 1], decoded[4 * s + 2], decoded[4 * s + 3]});
                }
            }
            let_copies_see_shared_memory();
            __syncwarp();
            if (lane == 0) {
                arrive(&tile.decoding.empty[packed.stage]);
                arrive(&tile.full[ring.stage]);
            }
            packed.advance();
            ring.advance();
        }
    }
}

// By one thread: what there is of 128 weights and 128 of K.
template <class Tile>
__device__ __forceinline__ void load_packed_weights(Tile& tile, int stage, const PackedMatrices& b, const Work& work, int chunk) {
    const int first = work.weight / CHUNK_ROWS;
    const uint32_t bytes = max(min(b.chunks - chunk, Tile::CHUNKS), 0) * Tile::CHUNK_BYTES;
    const bool has_second = first + 1 < b.tiles;
    Barrier* full = &tile.decoding.full[stage];
    arrive_expecting_bytes(full, has_second ? 2 * bytes : bytes);
    const uint8_t* from = b.first + ((int64_t(work.group) * b.tiles + first) * b.chunks + chunk) * Tile::CHUNK_BYTES;
    if (bytes == 0) return;
    load_bytes(tile.decoding.packed[stage][0], from, bytes, full);
    if (has_second) load_bytes(tile.decoding.packed[stage][1], from + int64_t(b.chunks) * Tile::CHUNK_BYTES, bytes, full);
}

// By one thread, or by its warp where the order takes one: packed weights and tokens, each into its ring, and which tile they are of. Packed
// ones go a ring ahead of the tokens.
template <class Tile, class Order, class Operands>
__device__ __forceinline__ void load_and_announce(Tile& tile, Order order, const Operands& operands, int lane) {
    Ring<Tile::STAGES> ring;
    Ring<Tile::Decoding::PACKED> packed;
    int slot = 0;
    Work work, next;
    for (bool more = order.next(work); more; work = next) {
        more = order.next(next);
        if (OfWarps<Order> && lane > 0) continue;
#pragma unroll 1
        for (int chunk = 0; chunk < work.end_block * PROMOTED_CHUNKS; chunk += Tile::CHUNKS) {
            wait(&tile.decoding.empty[packed.stage], packed.parity ^ 1);
            if (chunk == 0) tile.announced[slot] = {work.token, work.weight, work.end_token, work.group, more};
            load_packed_weights(tile, packed.stage, operands.b, work, chunk);
            packed.advance();
            tile.wait_until_empty(ring);
            arrive_expecting_bytes(&tile.full[ring.stage], operands.token_rows * 128);
            operands.load_tokens(tile, ring.stage, work, chunk);
            ring.advance();
        }
        slot = slot + 1 == Tile::COLUMNS ? 0 : slot + 1;
    }
}

// By a warp of its own, as load_token_scales(), in few registers: the scales of a tile's tokens.
template <class Tile, class Order>
__device__ __forceinline__ void load_scales_of_rows(Tile& tile, Order order, const TokenScales& scales, int lane) {
    Ring<Tile::STAGES> ring;
    for (Work work; order.next(work);) {
        const float* first = scales.of(work.token + lane, work.group, 0);
#pragma unroll 1
        for (int block = 0; block < work.end_block * (PROMOTED_CHUNKS / Tile::CHUNKS); block++, first += scales.block_stride) {
            const int rows = block < scales.blocks ? work.end_token - work.token : 0;
            uint32_t to = shared_address(tile.scales.of[ring.stage][0] + lane);
            const float* place = first;
            tile.wait_until_empty(ring);
#pragma unroll 1
            for (int token = lane; token < Tile::TOKENS; token += 32, place += 32 * scales.row_stride, to += 32 * sizeof(float))
                copy_4_bytes(to, place, token < rows);
            arrive_after_copies(&tile.full[ring.stage]);
            ring.advance();
        }
        __syncwarp();
    }
}

}  // namespace zoo
