// Rows of A through an index: the copy engine takes boxes of neighbouring rows only, so threads copy them, 16 bytes each,
// and lay them down as a tensor copy with the 128-byte swizzle would: piece p of row r at p ^ r % 8.
//
//     eight lanes copy one row's 128 bytes of a block of K; a scale of A or B is four bytes more, copied alike
//
// Every copying thread arrives at full[stage] by what it copied, and the multiplying threads, having waited, let the tensor cores see it.
// Weights come as everywhere, by the copying thread, whose announced bytes are the weights' alone.
#pragma once

#include <cstdint>

#include "common/async_copy.cuh"
#include "common/tensor_copy.cuh"
#include "gemm/fp8b128_mainloop.cuh"
#include "gemm/operands.cuh"

namespace zoo {

// A tile whose loading warps need more registers than those of others. A CTA begins with as many for all its threads, a
// multiple of 8, and only those can be given and taken: asking for more waits for ever.
template <class Tile>
struct GatheringTile : Tile {
    static constexpr int LOADER_REGISTERS = Tile::WARPGROUPS == 3 ? 80 : 88, MATH_REGISTERS = Tile::WARPGROUPS == 3 ? 144 : 208;
    static constexpr int AT_FIRST = 65536 / Tile::THREADS / 8 * 8;
    static_assert(LOADER_REGISTERS + Tile::WARPGROUPS * MATH_REGISTERS <= (1 + Tile::WARPGROUPS) * AT_FIRST);
    static_assert(Tile::THREADS == (1 + Tile::WARPGROUPS) * WARPGROUP);

    static constexpr uint32_t FULL_ARRIVALS = 1 + Tile::SCALE_THREADS;

    __device__ __forceinline__ void initialise() {
#pragma unroll
        for (int stage = 0; stage < Tile::STAGES; stage++) {
            zoo::initialise(&this->full[stage], FULL_ARRIVALS);
            zoo::initialise(&this->empty[stage], Tile::EMPTY_ARRIVALS);
        }
    }

    __device__ __forceinline__ void wait_until_full(Ring<Tile::STAGES> ring) {
        Tile::wait_until_full(ring);
        let_copies_see_shared_memory();
    }
};

// A (rows, K), of which row i of D takes row index[i]; a row of zeros, of scale zero, where that is none of A's.
struct GatheredRows {
    const uint8_t* first;
    int64_t stride;  // a multiple of 16
    int rows, K;
    const int* index;

    // Volatile: asked for where this stands.
    __device__ __forceinline__ int of(int row) const {
        int found;
        asm volatile("ld.global.b32 %0, [%1];" : "=r"(found) : "l"(index + row));
        return found;
    }
};

template <class Tile>
struct GatheredOperands {
    GatheredRows a;
    const TensorMap& b;
    Scales a_scales, b_scales;
    int64_t b_scales_group_stride;
    int weights;  // of a group

    __device__ __forceinline__ void prefetch_maps() const { prefetch(b); }

    // By the copying thread.
    __device__ __forceinline__ void load_elements(Tile& tile, int stage, const Work& work, int block) const {
        Barrier* full = &tile.full[stage];
        arrive_expecting_bytes(full, Tile::WEIGHTS * SCALE_BLOCK);
        load_box(tile.weights[stage], b, block * SCALE_BLOCK, work.group * weights + work.weight, full);
    }
};

// What one thread of several copies of every block of K of a tile: a piece of each row STEP apart, and the scales of rows THREADS apart.
template <class Tile>
class GatheringThread {
    static constexpr int THREADS = Tile::SCALE_THREADS, STEP = THREADS / 8;
    static constexpr int PIECES = (Tile::TOKENS + STEP - 1) / STEP;
    static constexpr int SCALES = Tile::TOKENS / THREADS + 1;
    static_assert(PIECES + SCALES <= 32 && (STEP % 8 == 0 || STEP % 8 == 4), "row % 8 takes two values at most");

   public:
    __device__ __forceinline__ GatheringThread(int thread) : thread(thread) {}

    // Finds its rows.
    __device__ __forceinline__ void look_up(const GatheredOperands<Tile>& operands, const Work& work) {
#pragma unroll
        for (int i = 0; i < PIECES; i++) {
            const int row = i * STEP + thread / 8;
            rows[i] = row < Tile::TOKENS && work.token + row < work.end_token ? operands.a.of(work.token + row) : -1;
        }
#pragma unroll
        for (int i = 0; i < SCALES; i++) {
            const int row = i * THREADS + thread;
            scale_rows[i] = row < Tile::TOKENS && work.token + row < work.end_token ? operands.a.of(work.token + row) : -1;
            if (is_weight(i)) scale_rows[i] = work.weight / SCALE_BLOCK;
        }
        group = work.group;
        existing = 0;
#pragma unroll
        for (int i = 0; i < PIECES; i++) {
            const bool exists = static_cast<uint32_t>(rows[i]) < static_cast<uint32_t>(operands.a.rows);
            rows[i] = exists ? rows[i] * static_cast<uint32_t>(operands.a.stride / 16) : 0;  // now in units of 16 bytes
            existing |= exists << i;
        }
#pragma unroll
        for (int i = 0; i < SCALES; i++) {
            const int there = is_weight(i) ? operands.b_scales.rows : operands.a_scales.rows;
            existing |= (static_cast<uint32_t>(scale_rows[i]) < static_cast<uint32_t>(there)) << PIECES + i;
        }
    }

    __device__ __forceinline__ void copy(Tile& tile, int stage, const GatheredOperands<Tile>& operands, int block) const {
        const int row = thread / 8, piece = thread % 8, column = block * SCALE_BLOCK + piece * 16;
        const bool within = column < operands.a.K;  // else no row has anything there, and no address is formed past its end
        const uint8_t* from = operands.a.first + (within ? column : 0);
        const uint32_t to = shared_address(tile.tokens[stage]) + row * SCALE_BLOCK, existing_here = within ? existing : 0;
        const uint32_t targets[2] = {to + (piece ^ row % 8) * 16, to + (piece ^ (row + STEP) % 8) * 16};  // of even and odd i
#pragma unroll
        for (int i = 0; i < PIECES; i++)
            if ((i + 1) * STEP <= Tile::TOKENS || i * STEP + row < Tile::TOKENS)
                copy_16_bytes(targets[i % 2] + i * STEP * SCALE_BLOCK, from + static_cast<uint32_t>(rows[i]) * uint64_t(16),
                              existing_here >> i & 1);
#pragma unroll
        for (int i = 0; i < SCALES; i++) {
            const int place = i * THREADS + thread;
            const bool exists = existing >> PIECES + i & 1;
            if (!is_weight(i)) {
                const Scales& a = operands.a_scales;
                const float* scale = a.first + scale_rows[i] * a.row_stride + block * a.block_stride;
                copy_4_bytes(shared_address(&tile.token_scales[stage][place]), exists ? scale : a.first, exists);
            } else if (place == Tile::TOKENS) {
                const Scales& b = operands.b_scales;
                const float* scale =
                    b.first + group * operands.b_scales_group_stride + scale_rows[i] * b.row_stride + block * b.block_stride;
                copy_4_bytes(shared_address(&tile.weight_scales[stage][0]), exists ? scale : b.first, exists);
            }
        }
        arrive_after_copies(&tile.full[stage]);
    }

   private:
    __device__ __forceinline__ bool is_weight(int i) const {
        return (i + 1) * THREADS > Tile::TOKENS && i * THREADS + thread >= Tile::TOKENS;
    }

    const int thread;
    int group;
    int rows[PIECES], scale_rows[SCALES];
    uint32_t existing;  // a bit for each of rows, then of scale_rows
};

template <class Tile, class Order>
__device__ __forceinline__ void gather_rows(Tile& tile, Order order, const GatheredOperands<Tile>& operands, int thread) {
    GatheringThread<Tile> mine(thread);
    Ring<Tile::STAGES> ring;
    for (Work work; order.next(work);) {
        mine.look_up(operands, work);
        for (int block = work.first_block; block < work.end_block; block++, ring.advance()) {
            tile.wait_until_empty(ring);
            mine.copy(tile, ring.stage, operands, block);
        }
    }
}

// By the loading warps: the first copies weights, the others rows and scales.
template <class Tile, class Order>
__device__ __forceinline__ void load(Tile& tile, Order order, const GatheredOperands<Tile>& operands) {
    const int thread = threadIdx.x - Tile::MATH_THREADS;
    if (thread >= 32)
        gather_rows(tile, order, operands, thread - 32);
    else if (thread == 0)
        load_elements(tile, order, operands);
}

}  // namespace zoo
