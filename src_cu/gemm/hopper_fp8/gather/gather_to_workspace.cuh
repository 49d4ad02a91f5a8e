// Gathers rows of A through an index once, to a workspace in the row sequence of D, from where tensor copies load tiles. Each column of tiles
// reads a row again, 20 to 50 times, and threads that gather rows (gathered_rows.cuh) would spend instructions each time. A warp of each CTA, the
// writer warp, copies rows while the math warps multiply. Tiles read them from L2. Included by gather.cu and gather_swiglu.cu.
//
//     writer warp    draws a ticket for a unit of UNIT rows of D, copies them through shared memory, marks the unit as ready, and goes on,
//                    at most AHEAD rows before the rows that its CTA multiplies. Its first unit passes through the ring of stages, all rows at
//                    once, while there is nothing to multiply
//     copying warp   waits until the units of its tile are ready, then issues tensor copies
//
// Writer warps wait for no other CTA after they have drawn a ticket, so any number of the grid's CTAs may run at a time. The workspace's first
// contents are arbitrary: CTA 0 clears tickets and marks, then keeps changing `generation` until all other CTAs have acknowledged a change.
#pragma once

#include <climits>
#include <concepts>
#include <cstdint>

#include "common/global_words.cuh"
#include "common/mbarrier.cuh"
#include "common/tensor_copy.cuh"
#include "gemm/hopper_fp8/producer.cuh"
#include "gemm/hopper_fp8/gather/gathered_rows.cuh"
#include "gemm/schedule/tile_schedule.cuh"

namespace zoo {

constexpr int UNIT = 16;  // rows of a ticket

// The workspace of M rows: K bytes of each, their scales as f32 with M contiguous, and a queue of units of UNIT rows.
struct GatherWorkspace {
    uint8_t* rows;
    float* scales;
    int64_t scales_stride;                                      // from K block to K block, in elements
    uint32_t *generation, *acknowledged, *next_ticket, *ready;  // as hopper_w4/dequantized/ticket_queue.cuh has them

    __device__ __forceinline__ GatherWorkspace(uint8_t* first, int M, int K)
        : rows(first), scales_stride(int64_t(ceil_div(M, UNIT)) * UNIT) {
        scales = reinterpret_cast<float*>(first + (int64_t(M) * K + 127) / 128 * 128);
        generation = reinterpret_cast<uint32_t*>(scales + scales_stride * ceil_div(K, SCALE_BLOCK));
        acknowledged = generation + 1;
        next_ticket = generation + 2;
        ready = generation + 4;
    }
    __device__ __forceinline__ ScaleMatrix scale_matrix(int M) const {
        return {reinterpret_cast<const uint8_t*>(scales), 4, scales_stride * 4, M, false};
    }
};

// Two producer warps load scales, a third is the writer warp. Its buffers fill the room beside four stages of 128 tokens and 256 weights.
template <class Tile>
struct GatherToWorkspaceTile : Tile {
    static constexpr int SCALE_THREADS = 64, E8M0_AHEAD = 1;  // a thread has four rows and few registers
    static constexpr uint32_t FULL_ARRIVALS = 1 + SCALE_THREADS / 32;
    static constexpr int BUFFERS = 2, CHUNK = 6144;  // bytes of a buffer and of a copy: smaller copies cost as many instructions
    static constexpr int SCALES_AT_ONCE = 3;         // a lane reads so many before it writes them

    alignas(1024) uint8_t buffers[BUFFERS][CHUNK];
    Barrier landed[BUFFERS], in_ring, cleared;
    int sources[UNIT];
    int progress;  // a row that is being multiplied, or at most a band of tiles after it

    __device__ __forceinline__ void initialise() {
        this->initialise_ring(FULL_ARRIVALS);
#pragma unroll
        for (int buffer = 0; buffer < BUFFERS; buffer++) zoo::initialise(&landed[buffer], 1);
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

// Operands whose A and scales are in the workspace.
template <class Tile>
struct WorkspaceOperands : Operands<Tile> {
    GatheredRows source;
    ScaleMatrix source_scales;
    const int* end;  // the end of the last group's rows of D
    GatherWorkspace workspace;
    int ahead;  // rows that the writer warp may be before the CTA's tile

    __device__ __forceinline__ void begin_token(auto& scales, const Work& work, int row) const {
        const bool exists = work.token + row < work.end_token;
        if (exists) wait_until_ready((work.token + row) / UNIT);
        scales.begin(this->a_scales, exists ? work.token + row : this->a_scales.rows, work.first_block);
    }

    __device__ __forceinline__ void wait_until_ready(int unit) const {
        while (load_acquire(workspace.ready + unit) == 0) __nanosleep(100);
    }
    // All lanes of a warp call this.
    __device__ __forceinline__ void wait_until_ready(const Work& work) const {
        const int last = (min(work.token + Tile::TOKENS, work.end_token) - 1) / UNIT;
        for (int unit = work.token / UNIT + threadIdx.x % 32; unit <= last; unit += 32) wait_until_ready(unit);
        __syncwarp();
        order_copies();
    }
    // All lanes of a warp call this.
    __device__ __forceinline__ const uint8_t* token_scales_to_copy(const Work& work) const {
        const uint8_t* scales = Operands<Tile>::token_scales_to_copy(work);
        if (scales) wait_until_ready(work);
        return scales;
    }
};

template <class Operands, class Tile>
concept ReadsWorkspace = std::derived_from<Operands, WorkspaceOperands<Tile>>;

template <class Tile>
class WorkspaceWriter {
    static constexpr int BUFFERS = Tile::BUFFERS, CHUNK = Tile::CHUNK;
    static constexpr int ROOM = (sizeof(Tile::tokens) + sizeof(Tile::weights)) / UNIT / 128 * 128;  // bytes of the ring for a row
    Tile& tile;
    const WorkspaceOperands<Tile>& operands;
    Ring<BUFFERS> loads, stores;  // used by lane 0
    const int end;
    uint32_t generation = 0, acknowledged_before = 0;
    bool all_acknowledged = true;

   public:
    __device__ __forceinline__ WorkspaceWriter(Tile& tile, const WorkspaceOperands<Tile>& operands)
        : tile(tile), operands(operands), end(*operands.end) {}

    // All lanes of the writer warp call this.
    __device__ __forceinline__ void run() {
        const int lane = threadIdx.x % 32;
        const int units = ceil_div(end, UNIT);
        open_queue(lane, units);
        int unit = __shfl_sync(~0u, lane == 0 ? draw_without_waiting() : 0, 0);
        bool through_ring = unit >= 0 && unit < units && operands.source.K <= ROOM;
        if (lane == 0 && !through_ring) arrive(&tile.cleared);
        for (;; unit = -1) {
            if (unit < 0) unit = __shfl_sync(~0u, lane == 0 ? draw() : 0, 0);
            if (unit >= units) break;
            const int row = unit * UNIT + lane;
            __syncwarp();
            if (lane < UNIT) {
                const int found = row < end ? operands.source.of(row) : -1;
                tile.sources[lane] = static_cast<uint32_t>(found) < static_cast<uint32_t>(operands.source.rows) ? found : -1;
            }
            __syncwarp();
            if (through_ring) load_to_ring(reread_thread_index() % 32);
            gather_scales(unit, reread_thread_index() % 32);  // else addresses of all rounds stay in registers
            __syncwarp();
            if (through_ring)
                store_from_ring(unit, reread_thread_index() % 32);
            else if (lane == 0)
                gather(unit);
            through_ring = false;
        }
        if (lane == 0)
            while (!all_acknowledged) advance_generation();
    }

   private:
    // Each lane copies a row of the unit to the ring.
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
            store_bytes(operands.workspace.rows + int64_t(row) * K, from, K);
        }
        wait_until_read<0>();
        __syncwarp();
        if (lane == 0) arrive(&tile.cleared);
        wait_until_written();
        order_copies();
        __syncwarp();
        if (lane == 0) store_release(operands.workspace.ready + unit, 1);
    }

    static __device__ __forceinline__ void clear(uint8_t* first, int bytes) {
#pragma unroll 1
        for (int i = 0; i < bytes; i += 16) *reinterpret_cast<uint4*>(first + i) = uint4{};
        let_copies_see_shared_memory();
    }

    __device__ __forceinline__ void open_queue(int lane, int units) {
        const GatherWorkspace& workspace = operands.workspace;
        if (blockIdx.x == 0) {
            if (lane == 0) {
                acknowledged_before = load_relaxed(workspace.acknowledged);
                generation = load_relaxed(workspace.generation);
                all_acknowledged = false;
                *workspace.next_ticket = 0;
            }
            for (int unit = lane; unit < units; unit += 32) workspace.ready[unit] = 0;
            __threadfence();
            __syncwarp();
            if (lane == 0) advance_generation();
        } else if (lane == 0) {
            const uint32_t before = load_relaxed(workspace.generation);
            while (load_acquire(workspace.generation) == before) __nanosleep(50);
            atomicAdd(workspace.acknowledged, 1);
        }
    }

    // CTA 0 calls this repeatedly, until all other CTAs have acknowledged.
    __device__ __forceinline__ void advance_generation() {
        if (all_acknowledged) return;
        store_release(operands.workspace.generation, ++generation);
        all_acknowledged = load_relaxed(operands.workspace.acknowledged) - acknowledged_before == gridDim.x - 1;
    }

    // Does not wait. Returns -1 if all units that may be gathered so early have been drawn.
    __device__ __forceinline__ int draw_without_waiting() {
        advance_generation();
        if (static_cast<int>(load_relaxed(operands.workspace.next_ticket)) >= operands.ahead / UNIT) return -1;
        return atomicAdd(operands.workspace.next_ticket, 1);
    }

    __device__ __forceinline__ int draw() {
        advance_generation();
        while (static_cast<int>(load_relaxed(operands.workspace.next_ticket)) >=
               (operands.ahead + static_cast<int64_t>(tile.get_progress())) / UNIT) {
            advance_generation();
            __nanosleep(500);
        }
        return atomicAdd(operands.workspace.next_ticket, 1);
    }

    // The warp copies the scales of two K blocks of all rows at a time. A lane issues several loads before their stores.
    __device__ __forceinline__ void gather_scales(int unit, int lane) const {
        constexpr int AT_ONCE = Tile::SCALES_AT_ONCE;
        const ScaleMatrix& scales = operands.source_scales;
        const int source = tile.sources[lane % UNIT], blocks = ceil_div(operands.source.K, SCALE_BLOCK);
        const int64_t from_step = 2 * scales.block_stride, to_step = 2 * operands.workspace.scales_stride;
        const uint8_t* from = scales.first + source * scales.row_stride + lane / UNIT * scales.block_stride;
        float* to = operands.workspace.scales + unit * UNIT + lane % UNIT + lane / UNIT * operands.workspace.scales_stride;
        for (int left = blocks - lane / UNIT; left > 0; left -= 2 * AT_ONCE) {
            uint32_t bits[AT_ONCE];
#pragma unroll
            for (int i = 0; i < AT_ONCE; i++) {
                bits[i] = 0;
                if (source >= 0 && 2 * i < left) bits[i] = read_scale(from, scales.are_e8m0);
                from += from_step;
            }
#pragma unroll
            for (int i = 0; i < AT_ONCE; i++) {
                if (2 * i < left) *to = scale_of(bits[i], scales.are_e8m0);
                to += to_step;
            }
        }
    }

    // Lane 0 copies the rows of a unit, which are contiguous in the workspace, in chunks of CHUNK bytes. It loads a chunk while it stores another.
    // Copies may land before the barrier expects their bytes: its phase lasts until this lane arrives. A unit has less than 2^31 bytes.
    __device__ __forceinline__ void gather(int unit) {
        const int K = operands.source.K, bytes = min(UNIT, end - unit * UNIT) * K;
        uint8_t* to = operands.workspace.rows + int64_t(unit) * UNIT * K;
        int row = 0, column = 0;  // of the next load
        for (int at = 0; at < bytes + CHUNK; at += CHUNK) {
            if (at < bytes) {
                uint8_t* buffer = tile.buffers[loads.stage];
                wait_until_read<0>();
                int loaded = 0;
                for (int done = 0, all = min(CHUNK, bytes - at); done < all;) {
                    const int source = tile.sources[row], part = min(all - done, K - column);
                    if (source >= 0) {
                        load_bytes(buffer + done, operands.source.first + source * operands.source.stride + column, part,
                                   &tile.landed[loads.stage]);
                        loaded += part;
                    } else {
                        clear(buffer + done, part);
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
                store_bytes(to, tile.buffers[stores.stage], min(CHUNK, bytes - at + CHUNK));
                to += CHUNK;
                stores.advance();
            }
        }
        wait_until_written();
        order_copies();
        store_release(operands.workspace.ready + unit, 1);
    }
};

// All producer warps call this: the copying warp, the writer warp, and the warps that load scales.
template <class Tile, class Schedule, ReadsWorkspace<Tile> Operands>
__device__ __forceinline__ void load(Tile& tile, Schedule schedule, const Operands& operands) {
    const int thread = threadIdx.x - Tile::MATH_THREADS;
    if (thread < 32 || thread >= 64) wait(&tile.cleared, 0);  // until then `ready` has arbitrary contents
    if (thread >= 64) {
        load_scales(tile, schedule, operands, thread - 64);
    } else if (thread >= 32) {
        WorkspaceWriter<Tile>(tile, operands).run();
    } else {
        Ring<Tile::STAGES> ring;
        for (Work work; schedule.next(work);) {
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
