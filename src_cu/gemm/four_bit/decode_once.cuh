// Packed weights decoded once for all tokens, by way of a workspace. A product of many tokens needs every weight in many tiles, and what
// lanes do to decode it takes tensor cores' time each time. So some warps of each CTA, the decoders, turn packed weights into e4m3 as
// wgmma reads them, and all CTAs copy their tiles from there, from L2.
//
//     decoders       claim a unit by a ticket, 128 weights and 128 of K; decode it into the workspace; say that it is ready; and go on, no more
//                    than so many units before those that their CTA and the CTAs beside it multiply, which are fewer than so many a stage
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
#include "gemm/schedule/ends_or_places.cuh"

namespace zoo {

// Groups that have rows, in the order in which their weights are wanted, 32 in a step: every lane has one of them, whose rows it reads anew each
// time, and where a warp is lies in shared memory, for registers are few. One matrix, where there are no places, is one group. By a whole warp.
template <int TOKENS>
struct GroupsWithRows {
    static constexpr uint32_t ALL = 0xFFFFFFFF;

    EndsOrPlaces groups;
    int count;

    struct Step : StepOfGroups {
        int begin, end;  // the rows of this lane's group
        uint32_t have_rows;

        __device__ __forceinline__ int tiles() const { return tiles_of(end - begin, TOKENS); }
    };
    // The step in which the warp was, or one after it: the first that is the right one.
    __device__ __forceinline__ bool find(StepOfGroups& at, Step& step, const auto& is_right) const {
        static_cast<StepOfGroups&>(step) = at;
        for (;;) {
            if (step.first >= count) return false;
            const int group = step.first + thread_index_anew() % 32;
            step.begin = step.end = 0;
            if (groups.places == nullptr)
                step.end = group == 0 ? groups.rows : 0;
            else if (group < count)
                groups.find(group, step.begin, step.end);
            step.have_rows = __ballot_sync(ALL, step.end > step.begin);
            if (is_right(step)) break;
            step.first += 32;
            step.before += __popc(step.have_rows);
            step.tiles_before += __reduce_add_sync(ALL, step.tiles());
        }
        __syncwarp();
        if (thread_index_anew() % 32 == 0) at = step;
        __syncwarp();
        return true;
    }
};

// The workspace: units, group after group, column of tiles after column, along K, each as a stage of shared memory has it; then the claims.
// Units are claimed in the order in which CTAs that begin together want them: of as many columns as run at a time, all that begin K, and so on.
template <int TOKENS, int BAND>
struct DecodedSpace {
    static constexpr int UNIT_BYTES = 128 * 128, UNITS_AHEAD = 1024;  // 16 MB, which stay in L2
    static constexpr uint32_t ALL = 0xFFFFFFFF;
    using Groups = GroupsWithRows<TOKENS>;

    uint8_t* weights;
    Groups groups;
    int columns, stages, box_rows;  // tiles of 128 weights; units along K; rows of a tile of one matrix

    __device__ __forceinline__ int units() const { return groups.count * columns * stages; }
    __device__ __forceinline__ Claims claims() const {
        int before = units();
        asm volatile("" : "+r"(before));  // worked out anew each time: no register keeps it
        return {reinterpret_cast<uint32_t*>(weights + int64_t(before) * UNIT_BYTES)};
    }
    // How many of a group's columns run at a time.
    static __device__ __forceinline__ int width(int tiles) { return tiles_of(gridDim.x, min(tiles, BAND)); }

    // A unit by its place in that order; false where there is none. Which group a decoder is at is found once for all its units.
    __device__ __forceinline__ bool find(DecodersPlace& at, const PackedMatrices& b, int ticket, DecodedUnit& unit) const {
        if (ticket - at.first_ticket >= columns * stages && !find_group(at, ticket / (columns * stages))) return false;
        ticket -= at.first_ticket;
        const int band = ticket / (at.width * stages), first = band * at.width, own = min(at.width, columns - first);
        ticket -= first * stages;
        const int stage = ticket / own, column = first + ticket - stage * own;
        unit = {(at.group * columns + column) * stages + stage, (at.group * b.tiles + 2 * column) * b.chunks + 2 * stage,
                b.tiles - 2 * column, b.chunks - 2 * stage};
        return true;
    }
    // Tile `index` of all, as OneOrGroupedOrder has them; false where there is none.
    __device__ __forceinline__ bool find(StepOfGroups& at, int index, DecodedWork& work) const {
        const bool is_one = groups.groups.places == nullptr;
        const int next = index + gridDim.x;
        int group = 0, ordinal = 0, begin = 0, end = groups.groups.rows, end_index = tiles_of(end, TOKENS) * columns;
        work.tile.more = next < end_index;
        if (is_one) {
            if (index >= end_index) return false;
        } else {
            typename Groups::Step step;
            if (!find_step(at, index, step, end_index)) return false;
            const int lane = __ffs(__ballot_sync(ALL, index < end_index)) - 1, last_index = __shfl_sync(ALL, end_index, 31);
            group = step.first + lane;
            ordinal = step.before + __popc(step.have_rows & (1u << lane) - 1);
            begin = __shfl_sync(ALL, step.begin, lane), end = __shfl_sync(ALL, step.end, lane);
            end_index = __shfl_sync(ALL, end_index, lane);
            int end_of_next;
            work.tile.more = next < last_index || find_step(at, next, step, end_of_next);
        }
        const int rows = tiles_of(end - begin, TOKENS), within = index - end_index + rows * columns,
                  high = is_one ? box_rows : TOKENS;
        const Banded<BAND> place(within, rows, columns);
        work.units_a_stage = width(rows);
        const int last =
            (within - int(blockIdx.x) + int(gridDim.x) - 1) / min(rows, BAND);  // the column of the last tile beside it
        const int before = place.row >= BAND || last >= columns ? columns : last / work.units_a_stage * work.units_a_stage;
        work.units_before = (ordinal * columns + before) * stages;
        work.tile.token = begin + place.row * high;
        work.tile.weight = place.column * 128;
        work.tile.end_token = min(end, work.tile.token + high);
        work.tile.group = group;
        return true;
    }

   private:
    __device__ __forceinline__ bool find_group(DecodersPlace& at, int ordinal) const {
        typename Groups::Step step;
        if (!groups.find(at.step, step, [&](const auto& step) { return ordinal < step.before + __popc(step.have_rows); }))
            return false;
        const uint32_t own = 1u << thread_index_anew() % 32;
        const bool is_it = (step.have_rows & own) != 0 && __popc(step.have_rows & own - 1) == ordinal - step.before;
        if (is_it) {
            at.group = step.first + thread_index_anew() % 32;
            at.width = width(step.tiles());
            at.first_ticket = ordinal * columns * stages;
        }
        __syncwarp();
        return true;
    }
    // In which step a tile is; the tiles of this lane's group end there.
    __device__ __forceinline__ bool find_step(StepOfGroups& at, int index, typename Groups::Step& found, int& end_index) const {
        return groups.find(at, found, [&](const auto& step) {
            end_index = (step.tiles_before + sum_of_lanes_up_to_this(step.tiles())) * columns;
            return index < __shfl_sync(ALL, end_index, 31);
        });
    }
};

// By a warp, beside others of its CTA: a unit is two pieces of 64 weights, each with a place for its packed bytes. A place is filled for the
// next unit as soon as it has been decoded. Who has claimed a unit may wait for its own CTA's tiles, which need none that comes after.
template <class Tile, class Space>
struct Decoder {
    static constexpr int PIECE_BYTES = CHUNK_ROWS * 128;  // decoded

    Tile& tile;
    const PackedMatrices& b;
    Space space;
    const int index;  // of the CTA's decoders
    uint32_t parity = 0;

    static __device__ __forceinline__ int lane_anew() { return thread_index_anew() % 32; }

    __device__ __forceinline__ void run() {
        if (index == 0) begin_claims(space.claims(), space.units(), lane_anew(), [&] { arrive(&tile.decoding.cleared); });
        wait(&tile.decoding.cleared, 0);
        auto claim = [&] { return lane_anew() == 0 ? increment(space.claims().next()) : 0; };
        uint32_t claimed = claim();
        int ticket = __shfl_sync(0xFFFFFFFF, claimed, 0);
        bool exists = find(ticket, parity);
        for (int height = 0; height < Tile::HEIGHTS; height++) load(exists, parity, height);
        while (exists) {
            claimed = claim();  // it is there when it is wanted
            while (ticket - Space::UNITS_AHEAD >= tile.decoding.get_progress()) __nanosleep(200);
#pragma unroll 1
            for (int height = 0; height < Tile::HEIGHTS; height++) {
                wait(&tile.decoding.full[index][height], parity);
                decode(height);
                __syncwarp();  // all have read what comes next overwrites
                if (height == 0) {
                    ticket = __shfl_sync(0xFFFFFFFF, claimed, 0);
                    exists = find(ticket, parity ^ 1);
                }
                load(exists, parity ^ 1, height);
            }
            order_copies();
            __syncwarp();
            if (lane_anew() == 0) store_release(space.claims().ready(unit(parity).place), 1);
            parity ^= 1;
        }
    }

   private:
    // Of two the one that is decoded, and the next.
    __device__ __forceinline__ DecodedUnit& unit(uint32_t parity) const { return tile.decoding.units[index][parity]; }
    __device__ __forceinline__ bool find(int ticket, uint32_t parity) const {
        DecodedUnit found;
        const bool exists = space.find(tile.decoding.decoders[index], b, ticket, found);
        if (lane_anew() == 0 && exists) unit(parity) = found;
        __syncwarp();
        return exists;
    }
    __device__ __forceinline__ void load(bool exists, uint32_t parity, int height) const {
        if (lane_anew() > 0 || !exists) return;
        const DecodedUnit next = unit(parity);
        const uint32_t bytes = height < next.heights ? max(min(next.chunks, Tile::CHUNKS), 0) * Tile::CHUNK_BYTES : 0;
        Barrier* full = &tile.decoding.full[index][height];
        arrive_expecting_bytes(full, bytes);
        if (bytes > 0)
            load_bytes(tile.decoding.packed[index][height],
                       b.first + (int64_t(next.first_chunk) + height * b.chunks) * Tile::CHUNK_BYTES, bytes, full);
    }

    // 16 weights after 16: words as a product from registers would take them lie in shared memory for a moment, by stmatrix, as rows of 128
    // bytes with the swizzle. Chunks that do not exist are zeros.
    __device__ __forceinline__ void decode(int height) const {
        const DecodedUnit of = unit(parity);
        const int chunks = height < of.heights ? of.chunks : 0;
        uint8_t* target = space.weights + (int64_t(of.place) * Tile::HEIGHTS + height) * PIECE_BYTES;
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

template <class Tile, class Space>
__device__ __forceinline__ Decoder<Tile, Space> decoder(Tile& tile, const PackedMatrices& b, Space space, int index) {
    return {tile, b, space, index};
}

// By a warp: decoded weights and tokens, which tile they are of, and its weights' factors.
template <class Tile, class Operands, class Space>
__device__ __forceinline__ void load_decoded(Tile& tile, const Operands& operands, Space space,
                                             const FourBitResult<Tile::FORMAT>& d, int lane) {
    wait(&tile.decoding.cleared, 0);  // before that `ready` is anything
    Ring<Tile::STAGES> ring;
    int slot = 0, index = blockIdx.x;
    for (DecodedWork found; space.find(tile.decoding.copying, index, found); index += gridDim.x) {
        const AnnouncedTile& work = found.tile;
        const int first = (work.group * space.columns + work.weight / Tile::WEIGHTS) * space.stages;
        uint32_t ready = 0;  // a bit for each of 32 stages
#pragma unroll 1
        for (int stage = 0; stage < space.stages; stage++) {
            if (stage % 32 == 0) ready = 0;
            if (lane == 0) tile.decoding.set_progress(found.units_before + stage * found.units_a_stage);
            while (!(ready >> stage % 32 & 1)) {
                const int own = stage / 32 * 32 + lane;
                ready = __ballot_sync(0xFFFFFFFF, own < space.stages && load_acquire(space.claims().ready(first + own)) == 1);
                order_copies();
                __syncwarp();  // lane 0 copies what another lane has acquired
            }
            tile.wait_until_empty(ring);
            if (stage == 0) {
                auto of_group = d;
                asm volatile("" : "+r"(of_group.columns));  // or registers keep what a group's factors are apart
                of_group = of_group.of(work.group);
#pragma unroll 1
                for (int i = lane; i < Tile::WEIGHTS; i += 32) {
                    const int at = min(work.weight + i, d.columns - 1);
                    tile.columns[slot][i] = make_float2(of_group.factor(at), d.bias != nullptr ? of_group.bias_of(at) : 0.0f);
                }
                __syncwarp();
            }
            if (lane == 0) {
                if (stage == 0) tile.announced[slot] = work;
                arrive_expecting_bytes(&tile.full[ring.stage], operands.token_rows * 128 + Space::UNIT_BYTES);
                load_bytes(tile.weights[ring.stage], space.weights + int64_t(first + stage) * Space::UNIT_BYTES,
                           Space::UNIT_BYTES, &tile.full[ring.stage]);
                operands.load_tokens(tile, ring.stage, {work.token, work.weight, work.end_token, work.group},
                                     stage * Tile::CHUNKS);
            }
            __syncwarp();
            ring.advance();
        }
        slot = slot + 1 == Tile::COLUMNS ? 0 : slot + 1;
    }
    if (lane == 0) tile.decoding.set_progress(INT_MAX);
}

}  // namespace zoo
