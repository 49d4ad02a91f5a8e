// Rows of A through an index: the copy engine takes boxes of neighbouring rows only, so threads copy them, 16 bytes each,
// and lay them down as a tensor copy with the 128-byte swizzle would: piece p of row r at p ^ r % 8.
//
//     eight lanes copy one row's 128 bytes of a block of K; an f32 scale of A or B is four bytes more, copied alike; where tokens
//     are columns, its products are stored, and scales where those of A or B are single bytes, which no copy brings
//
// Every copying thread arrives at full[stage] by what it copied, and the multiplying threads, having waited, let the tensor cores see it.
// Weights come as everywhere, by the copying thread, whose announced bytes are the weights' alone.
#pragma once

#include <concepts>
#include <cstdint>

#include "common/async_copy.cuh"
#include "common/tensor_copy.cuh"
#include "gemm/mainloop/fp8b128_mainloop.cuh"
#include "gemm/load/operands.cuh"

namespace zoo {

// Who copies rows needs more registers than other loading warps. A CTA begins with as many for all its threads, a multiple of 8,
// and only those can be given and taken: asking for more waits for ever.
template <class Tile>
struct GatheringTile : Tile {
    static constexpr int LOADER_REGISTERS = Tile::WARPGROUPS == 3 ? 80 : 72, MATH_REGISTERS = Tile::WARPGROUPS == 3 ? 144 : 216;
    static constexpr int AT_FIRST = 65536 / Tile::THREADS / 8 * 8;
    static_assert(!Tile::HUNGRY || LOADER_REGISTERS + Tile::WARPGROUPS * MATH_REGISTERS <= (1 + Tile::WARPGROUPS) * AT_FIRST);

    // Each thread by what it copied. Then the copying thread by its scale and its announced bytes, or by these, and each warp by
    // the scales or factors that it stored.
    __device__ __forceinline__ void initialise(bool stored = Tile::SWAPPED) {
        this->initialise_ring(Tile::SCALE_THREADS + 1 + (stored ? Tile::SCALE_THREADS / 32 : 1));
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
    __device__ __forceinline__ void load_weights(Tile& tile, int stage, const Work& work, int block) const {
        Barrier* full = &tile.full[stage];
        if constexpr (!Tile::SWAPPED) bring_weight_scales(tile, stage, [&](int) { return weight_scales(work, block); });
        arrive_expecting_bytes(full, Tile::WEIGHTS * SCALE_BLOCK);
        load_box(tile.weights[stage], b, block * SCALE_BLOCK, work.group * weights + work.weight, full);
    }
    __device__ __forceinline__ void load_tokens(Tile&, int, const Work&, int) const {}  // the others do

    // By copies, or at once: who copies is a ring of stages ahead. `place`: where one lies, null if it does not exist.
    template <class Place>
    __device__ __forceinline__ void bring_weight_scales(Tile& tile, int stage, Place place) const {
        constexpr int COUNT = Tile::WEIGHT_SCALES;
        float* to = tile.weight_scales[stage];
        const uint8_t* from[COUNT];
#pragma unroll
        for (int which = 0; which < COUNT; which++) from[which] = place(which);
        if (has_bytes(*this)) {
            uint32_t bits[COUNT] = {};
#pragma unroll
            for (int which = 0; which < COUNT; which++)
                if (from[which]) bits[which] = read_scale(from[which], b_scales.are_bytes);
#pragma unroll
            for (int which = 0; which < COUNT; which++) to[which] = scale_of(bits[which], b_scales.are_bytes);
        } else {
#pragma unroll
            for (int which = 0; which < COUNT; which++)
                copy_4_bytes(shared_address(to + which), from[which] ? from[which] : b_scales.first, from[which] != nullptr);
            arrive_after_copies(&tile.full[stage]);
        }
    }

    // From a block of K on.
    __device__ __forceinline__ const uint8_t* weight_scales(const Work& work, int block) const {
        return b_scales.first + work.group * b_scales_group_stride + work.weight / SCALE_BLOCK * b_scales.row_stride +
               block * b_scales.block_stride;
    }
    __device__ __forceinline__ void begin_weight(auto& scales, const Work& work, int) const {
        scales.begin({weight_scales(work, work.first_block), 0, b_scales.block_stride, 1, b_scales.are_bytes}, 0, 0);
    }
};

template <class Operands>
concept ThroughAnIndex = requires(const Operands& operands) {
    { operands.a } -> std::convertible_to<GatheredRows>;
};

// What one thread of several copies of every block of K of a tile: a piece of each row STEP apart, and the scales of rows THREADS
// apart.
template <class Tile>
class GatheringThread {
    static constexpr int THREADS = Tile::SCALE_THREADS, STEP = THREADS / 8;
    static constexpr int PIECES = (Tile::TOKENS + STEP - 1) / STEP;
    static constexpr int SCALES = (Tile::TOKENS + THREADS - 1) / THREADS;
    static_assert(PIECES + SCALES <= 32 && (STEP % 8 == 0 || STEP % 8 == 4), "row % 8 takes two values at most");

   public:
    __device__ __forceinline__ GatheringThread(int thread) : thread(thread) {}

    // Finds its rows, and where the work's first block of them lies.
    __device__ __forceinline__ void look_up(const GatheredOperands<Tile>& operands, const Work& work) {
        missing = 0;
        // What lies past the tile's last row is multiplied, but not stored: any row will do.
        auto row_of = [&](int row) { return operands.a.of(min(work.token + row, work.end_token - 1)); };
        auto existing = [&](int row, int bit) {
            const bool exists = static_cast<uint32_t>(row) < static_cast<uint32_t>(operands.a.rows);
            missing |= !exists << bit;
            return exists ? row : 0;
        };
#pragma unroll
        for (int i = 0; i < PIECES; i++) rows[i] = row_of(i * STEP + thread / 8);
#pragma unroll
        for (int i = 0; i < PIECES; i++) rows[i] = existing(rows[i], i) * static_cast<uint32_t>(operands.a.stride / 16);
        const Scales& a = operands.a_scales;
        int scale_rows[SCALES];
#pragma unroll
        for (int i = 0; i < SCALES; i++) scale_rows[i] = row_of(i * THREADS + thread);
#pragma unroll
        for (int i = 0; i < SCALES; i++)
            scales[i] = a.first + existing(scale_rows[i], PIECES + i) * a.row_stride + work.first_block * a.block_stride;
    }

    __device__ __forceinline__ bool has_all() const { return __all_sync(~0u, missing == 0); }  // and the warp's others

    // Where tokens are columns: of the thread's one row, from the work's first block on.
    __device__ __forceinline__ Scales scales_of_row(const GatheredOperands<Tile>& operands) const {
        static_assert(SCALES == 1);
        return {scales[0], 0, operands.a_scales.block_stride, !(missing >> PIECES & 1), operands.a_scales.are_bytes};
    }

    // CHECKED: some rows, or the end of each, may not exist.
    template <bool CHECKED>
    __device__ __forceinline__ void copy_elements(Tile& tile, int stage, const GatheredOperands<Tile>& operands, int block) {
        const int row = thread / 8, piece = thread % 8;
        const uint32_t to = shared_address(tile.tokens[stage]) + row * SCALE_BLOCK;
        const uint32_t targets[2] = {to + (piece ^ row % 8) * 16, to + (piece ^ (row + STEP) % 8) * 16};  // of even and odd i
        const int column = block * SCALE_BLOCK + piece * 16;
        const bool within =
            !CHECKED || column < operands.a.K;  // else no row has anything there, and no address is formed past its end
        const uint8_t* from = operands.a.first + (within ? column : 0);
        asm volatile("" : "+l"(from));  // one sum, to which each piece's row is added by one instruction
#pragma unroll
        for (int i = 0; i < PIECES; i++)
            if ((i + 1) * STEP <= Tile::TOKENS || i * STEP + row < Tile::TOKENS)
                copy_16_bytes(targets[i % 2] + i * STEP * SCALE_BLOCK, from + rows[i] * uint64_t(16),
                              !CHECKED || within && !(missing >> i & 1));
    }

    // Blocks one after the other.
    template <bool CHECKED>
    __device__ __forceinline__ void copy(Tile& tile, int stage, const GatheredOperands<Tile>& operands, int block) {
        copy_elements<CHECKED>(tile, stage, operands, block);
#pragma unroll
        for (int i = 0; i < SCALES; i++) {
            if ((i + 1) * THREADS <= Tile::TOKENS || i * THREADS + thread < Tile::TOKENS)
                copy_4_bytes(shared_address(&tile.token_scales[stage][i * THREADS + thread]), scales[i],
                             !CHECKED || !(missing >> PIECES + i & 1));
            scales[i] += operands.a_scales.block_stride;
        }
        arrive_after_copies(&tile.full[stage]);
    }

    // Block after block.
    __device__ __forceinline__ void read_scales(const GatheredOperands<Tile>& operands) {
#pragma unroll
        for (int i = 0; i < SCALES; i++) {
            soon[i] = missing >> PIECES + i & 1 ? 0 : read_scale(scales[i], operands.a_scales.are_bytes);
            scales[i] += operands.a_scales.block_stride;
        }
    }
    __device__ __forceinline__ void store_scales(Tile& tile, int stage, const GatheredOperands<Tile>& operands) const {
#pragma unroll
        for (int i = 0; i < SCALES; i++)
            if ((i + 1) * THREADS <= Tile::TOKENS || i * THREADS + thread < Tile::TOKENS)
                tile.token_scales[stage][i * THREADS + thread] = scale_of(soon[i], operands.a_scales.are_bytes);
    }

   private:
    const int thread;
    uint32_t rows[PIECES];  // in units of 16 bytes
    const uint8_t* scales[SCALES];
    uint32_t soon[SCALES];  // bytes that have been asked for
    uint32_t missing;       // a bit for each of rows, then of scales
};

// It takes a warp 6 to 8 cycles to issue anything while others multiply, and a block has 768: so where all rows exist, a copy is
// its address and itself, two instructions.
template <class Tile, class Order>
__device__ __forceinline__ void gather_rows(Tile& tile, Order order, const GatheredOperands<Tile>& operands, int thread) {
    GatheringThread<Tile> mine(thread);
    Ring<Tile::STAGES> ring;
    for (Work work; order.next(work);) {
        mine.look_up(operands, work);
        const int whole = mine.has_all() ? min(work.end_block, operands.a.K / SCALE_BLOCK) : work.first_block;
        int block = work.first_block;
        for (; __any_sync(~0u, block < whole); block++, ring.advance()) {
            tile.wait_until_empty(ring);
            mine.template copy<false>(tile, ring.stage, operands, block);
        }
        for (; __any_sync(~0u, block < work.end_block); block++, ring.advance()) {
            tile.wait_until_empty(ring);
            mine.template copy<true>(tile, ring.stage, operands, block);
        }
    }
}

// The same where scales are bytes: a thread loads those of its rows, a block before they are stored.
template <class Tile, class Order>
__device__ __forceinline__ void gather_rows_and_bytes(Tile& tile, Order order, const GatheredOperands<Tile>& operands,
                                                      int thread) {
    GatheringThread<Tile> mine(thread);
    Ring<Tile::STAGES> ring;
    for (Work work; order.next(work);) {
        mine.look_up(operands, work);
        mine.read_scales(operands);
        for (int block = work.first_block; __any_sync(~0u, block < work.end_block); block++, ring.advance()) {
            tile.wait_until_empty(ring);
            mine.template copy_elements<true>(tile, ring.stage, operands, block);
            arrive_after_copies(&tile.full[ring.stage]);
            mine.store_scales(tile, ring.stage, operands);
            if (block + 1 < work.end_block) mine.read_scales(operands);
            __syncwarp();
            if (thread % 32 == 0) arrive(&tile.full[ring.stage]);
        }
    }
}

// The same where tokens are columns: a thread has pieces of eight rows and the factors of one, as in load_factors(). Tiles are
// few and wait for weights, so nothing is saved.
template <bool EITHER, class Tile, class Order, class Operands>
__device__ __forceinline__ void gather_columns(Tile& tile, Order order, const Operands& operands, int thread) {
    constexpr int AHEAD = RowScales<EITHER>::AHEAD, ENTRIES = Tile::WEIGHT_SCALES;
    static_assert(Tile::SCALE_THREADS == Tile::TOKENS);
    GatheringThread<Tile> mine(thread);
    Ring<Tile::STAGES> ring;
    for (Work work; order.next(work);) {
        mine.look_up(operands, work);
        RowScales<EITHER> token, weights[ENTRIES];
        token.begin(mine.scales_of_row(operands), 0, 0);
#pragma unroll
        for (int entry = 0; entry < ENTRIES; entry++) operands.begin_weight(weights[entry], work, entry);
        auto read = [&](int left) {
            token.read(left);
#pragma unroll
            for (int entry = 0; entry < ENTRIES; entry++) weights[entry].read(left);
        };
        read(work.end_block - work.first_block);
        for (int first = work.first_block; first < work.end_block; first += AHEAD) {
            read(work.end_block - first - AHEAD);
#pragma unroll
            for (int ahead = 0; ahead < AHEAD; ahead++) {
                if (first + ahead == work.end_block) break;
                tile.wait_until_empty(ring);
                mine.template copy_elements<true>(tile, ring.stage, operands, first + ahead);
                arrive_after_copies(&tile.full[ring.stage]);
#pragma unroll
                for (int entry = 0; entry < ENTRIES; entry++)
                    tile.factor(ring.stage, entry, thread) = token.of(ahead) * weights[entry].of(ahead);
                __syncwarp();
                if (thread % 32 == 0) arrive(&tile.full[ring.stage]);
                ring.advance();
            }
        }
    }
}

// By the loading warps: the first copies weights, the others rows and scales.
template <class Tile, class Order, ThroughAnIndex Operands>
__device__ __forceinline__ void load(Tile& tile, Order order, const Operands& operands, int = 0) {
    const int thread = threadIdx.x - Tile::MATH_THREADS;
    if (thread >= 32) {
        if constexpr (Tile::SWAPPED) {
            if (has_bytes(operands))
                gather_columns<true>(tile, order, operands, thread - 32);
            else
                gather_columns<false>(tile, order, operands, thread - 32);
        } else {
            if (has_bytes(operands))
                gather_rows_and_bytes(tile, order, operands, thread - 32);
            else
                gather_rows(tile, order, operands, thread - 32);
        }
    } else if (OfWarps<Order> || thread == 0) {
        load_elements(tile, order, operands, thread, 0);
    }
}

}  // namespace zoo
