// Rows of A through an index by way of a workspace. Every block of a row is asked for by each column of tiles, 20 to 50 times, and
// what threads copy themselves costs instructions each time. So rows are moved once, into the order of D, and tiles are loaded from
// there by boxes. One warp of each CTA, the mover, does it while the others multiply; what it writes is read from L2.
//
//     mover          claims UNIT rows of D by a ticket, copies them through shared memory, says that they are ready, and goes on,
//                    no more than AHEAD rows before those that its CTA multiplies. Its first unit goes through the ring, all at once,
//                    while there is nothing to multiply
//     copying warp   waits until the units of its tile are ready, then copies boxes as everywhere
//
// Who claims waits for nobody, so it does not matter how many of the grid's CTAs run at a time. The workspace may hold anything: CTA 0
// clears tickets and marks, and the others learn of it as in common/grid_maximum.cuh: CTA 0 changes `beat` until all have seen it change.
#pragma once

#include <climits>
#include <concepts>
#include <cstdint>

#include "common/global_words.cuh"
#include "common/mbarrier.cuh"
#include "common/registers.cuh"
#include "common/tensor_copy.cuh"
#include "gemm/mainloop/fp8b128_mainloop.cuh"
#include "gemm/load/gathered_rows.cuh"
#include "gemm/load/operands.cuh"
#include "gemm/schedule/tile_order.cuh"

namespace zoo {

constexpr int UNIT = 16;  // rows that are claimed at once

// The workspace of M rows: their K bytes, their scales with M contiguous, as f32 whatever they were, and words, of which `ready` has
// one for each unit.
struct MoverSpace {
    uint8_t* rows;
    float* scales;
    int64_t scales_stride;  // from block to block, in elements
    uint32_t *beat, *seen, *next, *ready;

    __device__ __forceinline__ MoverSpace(uint8_t* first, int M, int K)
        : rows(first), scales_stride(int64_t(tiles_of(M, UNIT)) * UNIT) {
        scales = reinterpret_cast<float*>(first + (int64_t(M) * K + 127) / 128 * 128);
        beat = reinterpret_cast<uint32_t*>(scales + scales_stride * tiles_of(K, SCALE_BLOCK));
        seen = beat + 1;
        next = beat + 2;
        ready = beat + 4;
    }
    __device__ __forceinline__ Scales moved_scales(int M) const {
        return {reinterpret_cast<const uint8_t*>(scales), 4, scales_stride * 4, M, false};
    }
};

// Two warps bring scales, a third moves rows. Its buffers are what four stages of 128 tokens and 256 weights leave room for.
template <class Tile>
struct MovingTile : Tile {
    static constexpr int SCALE_THREADS = 64, BYTES_AHEAD = 1;  // a thread has four rows, and few registers
    static constexpr uint32_t FULL_ARRIVALS = 1 + SCALE_THREADS / 32;
    static constexpr int SLOTS = 2,
                         CHUNK = 6144;  // buffers and their bytes, copied at once: to ask for a copy costs about as much for less
    static constexpr int SCALES_AT_ONCE = 3;  // that a lane reads before it writes them

    alignas(1024) uint8_t slots[SLOTS][CHUNK];
    Barrier landed[SLOTS], in_ring, cleared;
    int sources[UNIT];
    int progress;  // the first row that is being multiplied, or at most one band of tiles after it

    __device__ __forceinline__ void initialise() {
        this->initialise_ring(FULL_ARRIVALS);
#pragma unroll
        for (int slot = 0; slot < SLOTS; slot++) zoo::initialise(&landed[slot], 1);
        zoo::initialise(&in_ring, 1);
        zoo::initialise(&cleared, 1);
        progress = 0;
    }
    __device__ __forceinline__ void set_progress(int row) {
        asm volatile("st.relaxed.cta.shared::cta.s32 [%0], %1;" ::"r"(shared_address(&progress)), "r"(row) : "memory");
    }
    __device__ __forceinline__ int get_progress() const {
        int row;
        asm volatile("ld.relaxed.cta.shared::cta.s32 %0, [%1];" : "=r"(row) : "r"(shared_address(&progress)) : "memory");
        return row;
    }
};

// As Operands, `a` and its scales being those in the workspace.
template <class Tile>
struct MovedOperands : Operands<Tile> {
    GatheredRows source;
    Scales source_scales;
    const int* end;  // of the rows of D that somebody has
    MoverSpace space;
    int ahead;  // rows that the mover may be before the CTA's tile

    __device__ __forceinline__ void begin_token(auto& scales, const Work& work, int row) const {
        const bool exists = work.token + row < work.end_token;
        if (exists) wait_until_ready((work.token + row) / UNIT);
        scales.begin(this->a_scales, exists ? work.token + row : this->a_scales.rows, work.first_block);
    }

    __device__ __forceinline__ void wait_until_ready(int unit) const {
        while (load_acquire(space.ready + unit) == 0) __nanosleep(100);
    }
    // By a warp.
    __device__ __forceinline__ void wait_until_ready(const Work& work) const {
        const int last = (min(work.token + Tile::TOKENS, work.end_token) - 1) / UNIT;
        for (int unit = work.token / UNIT + threadIdx.x % 32; unit <= last; unit += 32) wait_until_ready(unit);
        __syncwarp();
        order_copies();
    }
    // By a warp.
    __device__ __forceinline__ const uint8_t* token_scales_to_copy(const Work& work) const {
        const uint8_t* scales = Operands<Tile>::token_scales_to_copy(work);
        if (scales) wait_until_ready(work);
        return scales;
    }
};

template <class Operands, class Tile>
concept Moved = std::derived_from<Operands, MovedOperands<Tile>>;

template <class Tile>
class Mover {
    static constexpr int SLOTS = Tile::SLOTS, CHUNK = Tile::CHUNK;
    static constexpr int ROOM = (sizeof(Tile::tokens) + sizeof(Tile::weights)) / UNIT / 128 * 128;  // of the ring, for a row
    Tile& tile;
    const MovedOperands<Tile>& operands;
    Ring<SLOTS> loads, stores;  // of lane 0
    const int end;
    uint32_t now = 0, seen_before = 0;
    bool all_have_seen = true;

   public:
    __device__ __forceinline__ Mover(Tile& tile, const MovedOperands<Tile>& operands)
        : tile(tile), operands(operands), end(*operands.end) {}

    // By a warp.
    __device__ __forceinline__ void run() {
        const int lane = threadIdx.x % 32;
        const int units = tiles_of(end, UNIT);
        begin(lane, units);
        int unit = __shfl_sync(~0u, lane == 0 ? claim_at_once() : 0, 0);
        bool through_ring = unit >= 0 && unit < units && operands.source.K <= ROOM;
        if (lane == 0 && !through_ring) arrive(&tile.cleared);
        for (;; unit = -1) {
            if (unit < 0) unit = __shfl_sync(~0u, lane == 0 ? claim() : 0, 0);
            if (unit >= units) break;
            const int row = unit * UNIT + lane;
            __syncwarp();
            if (lane < UNIT) {
                const int found = row < end ? operands.source.of(row) : -1;
                tile.sources[lane] = static_cast<uint32_t>(found) < static_cast<uint32_t>(operands.source.rows) ? found : -1;
            }
            __syncwarp();
            if (through_ring) load_to_ring(thread_index_anew() % 32);
            move_scales(unit, thread_index_anew() % 32);  // else the addresses of all its rounds wait in registers
            __syncwarp();
            if (through_ring)
                store_from_ring(unit, thread_index_anew() % 32);
            else if (lane == 0)
                move(unit);
            through_ring = false;
        }
        if (lane == 0)
            while (!all_have_seen) beat();
    }

   private:
    // By a warp, of which each lane takes a row: all of a unit at once.
    __device__ __forceinline__ void load_to_ring(int lane) {
        const int source = lane < UNIT ? tile.sources[lane] : -1, K = operands.source.K;
        const int rows = __popc(__ballot_sync(~0u, source >= 0));
        if (lane == 0) arrive_expecting_bytes(&tile.in_ring, K * rows);
        __syncwarp();
        if (source >= 0)
            load_bytes(tile.tokens[0] + lane * ROOM, operands.source.first + source * operands.source.stride, K, &tile.in_ring);
    }
    __device__ __forceinline__ void store_from_ring(int unit, int lane) {
        const int K = operands.source.K, row = unit * UNIT + lane;
        wait(&tile.in_ring, 0);
        if (lane < UNIT && row < end) {
            uint8_t* from = tile.tokens[0] + lane * ROOM;
            if (tile.sources[lane] < 0) clear(from, K);
            store_bytes(operands.space.rows + int64_t(row) * K, from, K);
        }
        wait_until_read<0>();
        __syncwarp();
        if (lane == 0) arrive(&tile.cleared);
        wait_until_written();
        order_copies();
        __syncwarp();
        if (lane == 0) store_release(operands.space.ready + unit, 1);
    }

    static __device__ __forceinline__ void clear(uint8_t* first, int bytes) {
#pragma unroll 1
        for (int i = 0; i < bytes; i += 16) *reinterpret_cast<uint4*>(first + i) = uint4{};
        let_copies_see_shared_memory();
    }

    __device__ __forceinline__ void begin(int lane, int units) {
        const MoverSpace& state = operands.space;
        if (blockIdx.x == 0) {
            if (lane == 0) {
                seen_before = load_relaxed(state.seen);
                now = load_relaxed(state.beat);
                all_have_seen = false;
                *state.next = 0;
            }
            for (int unit = lane; unit < units; unit += 32) state.ready[unit] = 0;
            __threadfence();
            __syncwarp();
            if (lane == 0) beat();
        } else if (lane == 0) {
            const uint32_t before = load_relaxed(state.beat);
            while (load_acquire(state.beat) == before) __nanosleep(50);
            atomicAdd(state.seen, 1);
        }
    }

    // By CTA 0, again and again, until all the others have seen it.
    __device__ __forceinline__ void beat() {
        if (all_have_seen) return;
        store_release(operands.space.beat, ++now);
        all_have_seen = load_relaxed(operands.space.seen) - seen_before == gridDim.x - 1;
    }

    // Without waiting; -1 if all that may be moved so early has been claimed.
    __device__ __forceinline__ int claim_at_once() {
        beat();
        if (static_cast<int>(load_relaxed(operands.space.next)) >= operands.ahead / UNIT) return -1;
        return atomicAdd(operands.space.next, 1);
    }

    __device__ __forceinline__ int claim() {
        beat();
        while (static_cast<int>(load_relaxed(operands.space.next)) >=
               (operands.ahead + static_cast<int64_t>(tile.get_progress())) / UNIT) {
            beat();
            __nanosleep(500);
        }
        return atomicAdd(operands.space.next, 1);
    }

    // By a warp: two blocks of all rows at a time, some loads before their stores.
    __device__ __forceinline__ void move_scales(int unit, int lane) const {
        constexpr int AT_ONCE = Tile::SCALES_AT_ONCE;
        const Scales& scales = operands.source_scales;
        const int source = tile.sources[lane % UNIT], blocks = tiles_of(operands.source.K, SCALE_BLOCK);
        const int64_t from_step = 2 * scales.block_stride, to_step = 2 * operands.space.scales_stride;
        const uint8_t* from = scales.first + source * scales.row_stride + lane / UNIT * scales.block_stride;
        float* to = operands.space.scales + unit * UNIT + lane % UNIT + lane / UNIT * operands.space.scales_stride;
        for (int left = blocks - lane / UNIT; left > 0; left -= 2 * AT_ONCE) {
            uint32_t bits[AT_ONCE];
#pragma unroll
            for (int i = 0; i < AT_ONCE; i++) {
                bits[i] = 0;
                if (source >= 0 && 2 * i < left) bits[i] = read_scale(from, scales.are_bytes);
                from += from_step;
            }
#pragma unroll
            for (int i = 0; i < AT_ONCE; i++) {
                if (2 * i < left) *to = scale_of(bits[i], scales.are_bytes);
                to += to_step;
            }
        }
    }

    // By one thread: the rows of a unit, which lie one after the other then, in pieces of CHUNK bytes. One is loaded while another is stored.
    // Copies may end before the barrier expects them: its phase lasts until this thread has arrived. A unit has less than 2^31 bytes.
    __device__ __forceinline__ void move(int unit) {
        const int K = operands.source.K, bytes = min(UNIT, end - unit * UNIT) * K;
        uint8_t* to = operands.space.rows + int64_t(unit) * UNIT * K;
        int row = 0, column = 0;  // of what is loaded next
        for (int at = 0; at < bytes + CHUNK; at += CHUNK) {
            if (at < bytes) {
                uint8_t* slot = tile.slots[loads.stage];
                wait_until_read<0>();
                int loaded = 0;
                for (int done = 0, all = min(CHUNK, bytes - at); done < all;) {
                    const int source = tile.sources[row], part = min(all - done, K - column);
                    if (source >= 0) {
                        load_bytes(slot + done, operands.source.first + source * operands.source.stride + column, part,
                                   &tile.landed[loads.stage]);
                        loaded += part;
                    } else {
                        clear(slot + done, part);
                    }
                    done += part;
                    column += part;
                    if (column == K) column = 0, row++;
                }
                arrive_expecting_bytes(&tile.landed[loads.stage], loaded);
                loads.advance();
            }
            if (at > 0) {
                wait(&tile.landed[stores.stage], stores.parity);
                store_bytes(to, tile.slots[stores.stage], min(CHUNK, bytes - at + CHUNK));
                to += CHUNK;
                stores.advance();
            }
        }
        wait_until_written();
        order_copies();
        store_release(operands.space.ready + unit, 1);
    }
};

// By the loading warps: the first copies boxes, the second moves rows, the others bring scales.
template <class Tile, class Order, Moved<Tile> Operands>
__device__ __forceinline__ void load(Tile& tile, Order order, const Operands& operands) {
    const int thread = threadIdx.x - Tile::MATH_THREADS;
    if (thread < 32 || thread >= 64) wait(&tile.cleared, 0);  // before that `ready` is anything
    if (thread >= 64) {
        load_scales(tile, order, operands, thread - 64);
    } else if (thread >= 32) {
        Mover<Tile>(tile, operands).run();
    } else {
        Ring<Tile::STAGES> ring;
        for (Work work; order.next(work);) {
            if (thread == 0) tile.set_progress(work.token);
            operands.wait_until_ready(work);
            if (thread == 0)
                for (int block = work.first_block; block < work.end_block; block++, ring.advance()) {
                    tile.wait_until_empty(ring);
                    operands.load_weights(tile, ring.stage, work, block);
                    operands.load_tokens(tile, ring.stage, work, block);
                }
            __syncwarp();
        }
        if (thread == 0) tile.set_progress(INT_MAX);
    }
}

}  // namespace zoo
