// Operands and producer warps that gather rows of A through an index. A tensor copy loads a box of neighbouring rows only, so threads copy rows, 16
// bytes at a time. Piece p of row r is at p ^ r % 8, as in the 128-byte swizzle of tensor copies. Included by the gather kernels.
//
//     Eight lanes copy 128 bytes of a row, a K block. f32 scales of A and B are copied, 4 bytes each. Scale products (tokens as columns of wgmma)
//     and ue8m0 scales are loaded and stored by threads, because no copy converts them.
//
// Every copying thread arrives at full[stage] when its copies have landed. Math warps, having waited, make the copies visible to the tensor cores.
// Weights come by tensor copies, whose bytes are the only bytes that full[stage] counts.
#pragma once

#include <cstdint>

#include "common/async_copy.cuh"
#include "common/tensor_copy.cuh"
#include "gemm/hopper_fp8/producer.cuh"

namespace zoo {

// Producer warps that copy rows need more registers than others. All threads of a CTA start with the same number, a multiple of 8. Only these
// registers can be reallocated: raising the number beyond them waits for ever.
template <class Tile>
struct GatherTile : Tile {
    static constexpr int LOADER_REGISTERS = Tile::WARPGROUPS == 3 ? 80 : 72, MATH_REGISTERS = Tile::WARPGROUPS == 3 ? 144 : 216;
    static constexpr int AT_FIRST = 65536 / Tile::THREADS / 8 * 8;
    static_assert(!Tile::REALLOCATES_REGISTERS ||
                  LOADER_REGISTERS + Tile::WARPGROUPS * MATH_REGISTERS <= (1 + Tile::WARPGROUPS) * AT_FIRST);

    // Each thread arrives for its copies, and the thread that copies weights for their bytes. Either this thread arrives for the scales of B, or
    // each warp for the scales or scale products that it stored.
    __device__ __forceinline__ void initialise(bool stored = Tile::SWAPPED) {
        this->initialise_ring(Tile::SCALE_THREADS + 1 + (stored ? Tile::SCALE_THREADS / 32 : 1));
    }

    __device__ __forceinline__ void wait_until_full(Ring<Tile::STAGES> ring) {
        Tile::wait_until_full(ring);
        let_copies_see_shared_memory();
    }
};

// A (rows, K). Row i of D is the product of row index[i] of A. A missing row counts as zeros with scale zero.
struct GatheredRows {
    const uint8_t* first;
    int64_t stride;  // a multiple of 16
    int rows, K;
    const int* index;

    // Volatile: keeps the loads where they are issued.
    __device__ __forceinline__ int of(int row) const {
        int found;
        asm volatile("ld.global.b32 %0, [%1];" : "=r"(found) : "l"(index + row));
        return found;
    }
};

template <class Tile>
struct GatheredOperands {
    static constexpr bool GATHERS = true;
    GatheredRows a;
    const TensorMap& b;
    ScaleMatrix a_scales, b_scales;
    int64_t b_scales_group_stride;
    int weights;  // rows of B a group

    __device__ __forceinline__ void prefetch_maps() const { prefetch(b); }

    // The copying thread calls this.
    __device__ __forceinline__ void load_weights(Tile& tile, int stage, const Work& work, int block) const {
        Barrier* full = &tile.full[stage];
        if constexpr (!Tile::SWAPPED) load_weight_scales(tile, stage, [&](int) { return weight_scales(work, block); });
        arrive_expecting_bytes(full, Tile::WEIGHTS * SCALE_BLOCK);
        load_box(tile.weights[stage], b, block * SCALE_BLOCK, work.group * weights + work.weight, full);
    }
    __device__ __forceinline__ void load_tokens(Tile&, int, const Work&, int) const {}  // other threads do

    // Copies the scales if A and B have f32 scales. Else loads them: the ring of stages hides the latency. `address_of` returns null for a
    // missing scale.
    template <class AddressOf>
    __device__ __forceinline__ void load_weight_scales(Tile& tile, int stage, AddressOf address_of) const {
        constexpr int COUNT = Tile::WEIGHT_SCALES;
        float* to = tile.weight_scales[stage];
        const uint8_t* from[COUNT];
#pragma unroll
        for (int which = 0; which < COUNT; which++) from[which] = address_of(which);
        if (any_e8m0(*this)) {
            uint32_t bits[COUNT] = {};
#pragma unroll
            for (int which = 0; which < COUNT; which++)
                if (from[which]) bits[which] = read_scale(from[which], b_scales.are_e8m0);
#pragma unroll
            for (int which = 0; which < COUNT; which++) to[which] = scale_of(bits[which], b_scales.are_e8m0);
        } else {
#pragma unroll
            for (int which = 0; which < COUNT; which++)
                copy_4_bytes(shared_address(to + which), from[which] ? from[which] : b_scales.first, from[which] != nullptr);
            arrive_after_copies(&tile.full[stage]);
        }
    }

    // The scale of the tile's first weight in a K block.
    __device__ __forceinline__ const uint8_t* weight_scales(const Work& work, int block) const {
        return b_scales.first + work.group * b_scales_group_stride + work.weight / SCALE_BLOCK * b_scales.row_stride +
               block * b_scales.block_stride;
    }
    __device__ __forceinline__ void begin_weight(auto& scales, const Work& work, int) const {
        scales.begin({weight_scales(work, work.first_block), 0, b_scales.block_stride, 1, b_scales.are_e8m0}, 0, 0);
    }
};

template <class Operands>
concept GathersRows = requires { requires Operands::GATHERS; };

// What a thread copies of a K block: a piece of rows that are STEP apart, and the scales of rows that are THREADS apart.
template <class Tile>
class GatheringThread {
    static constexpr int THREADS = Tile::SCALE_THREADS, STEP = THREADS / 8;
    static constexpr int PIECES = (Tile::TOKENS + STEP - 1) / STEP;
    static constexpr int SCALES = (Tile::TOKENS + THREADS - 1) / THREADS;
    static_assert(PIECES + SCALES <= 32 && (STEP % 8 == 0 || STEP % 8 == 4), "row % 8 takes two values at most");

   public:
    __device__ __forceinline__ GatheringThread(int thread) : thread(thread) {}

    // Looks up the thread's rows, and the addresses of their first K block.
    __device__ __forceinline__ void look_up(const GatheredOperands<Tile>& operands, const Work& work) {
        missing = 0;
        // Rows past the tile's last row are multiplied but not stored, so any row will do.
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
        const ScaleMatrix& a = operands.a_scales;
        int scale_rows[SCALES];
#pragma unroll
        for (int i = 0; i < SCALES; i++) scale_rows[i] = row_of(i * THREADS + thread);
#pragma unroll
        for (int i = 0; i < SCALES; i++)
            scales[i] = a.first + existing(scale_rows[i], PIECES + i) * a.row_stride + work.first_block * a.block_stride;
    }

    __device__ __forceinline__ bool has_all() const { return __all_sync(~0u, missing == 0); }  // in all lanes of the warp

    // The scales of the thread's row, from the first K block on, where tokens are the columns of wgmma.
    __device__ __forceinline__ ScaleMatrix scales_of_row(const GatheredOperands<Tile>& operands) const {
        static_assert(SCALES == 1);
        return {scales[0], 0, operands.a_scales.block_stride, !(missing >> PIECES & 1), operands.a_scales.are_e8m0};
    }

    // CHECKED: some rows may be missing, or K may end inside the block.
    template <bool CHECKED>
    __device__ __forceinline__ void copy_elements(Tile& tile, int stage, const GatheredOperands<Tile>& operands, int block) {
        const int row = thread / 8, piece = thread % 8;
        const uint32_t to = shared_address(tile.tokens[stage]) + row * SCALE_BLOCK;
        const uint32_t targets[2] = {to + (piece ^ row % 8) * 16, to + (piece ^ (row + STEP) % 8) * 16};  // for even and odd i
        const int column = block * SCALE_BLOCK + piece * 16;
        const bool within =
            !CHECKED ||
            column < operands.a.K;  // else the block has no bytes here, and no address may be formed past the end of rows
        const uint8_t* from = operands.a.first + (within ? column : 0);
        asm volatile("" : "+l"(from));  // keeps the sum in a register: adding a row to it is one instruction
#pragma unroll
        for (int i = 0; i < PIECES; i++)
            if ((i + 1) * STEP <= Tile::TOKENS || i * STEP + row < Tile::TOKENS)
                copy_16_bytes(targets[i % 2] + i * STEP * SCALE_BLOCK, from + rows[i] * uint64_t(16),
                              !CHECKED || within && !(missing >> i & 1));
    }

    // Called for K blocks in sequence.
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

    // Called for K blocks in sequence.
    __device__ __forceinline__ void read_scales(const GatheredOperands<Tile>& operands) {
#pragma unroll
        for (int i = 0; i < SCALES; i++) {
            loaded[i] = missing >> PIECES + i & 1 ? 0 : read_scale(scales[i], operands.a_scales.are_e8m0);
            scales[i] += operands.a_scales.block_stride;
        }
    }
    __device__ __forceinline__ void store_scales(Tile& tile, int stage, const GatheredOperands<Tile>& operands) const {
#pragma unroll
        for (int i = 0; i < SCALES; i++)
            if ((i + 1) * THREADS <= Tile::TOKENS || i * THREADS + thread < Tile::TOKENS)
                tile.token_scales[stage][i * THREADS + thread] = scale_of(loaded[i], operands.a_scales.are_e8m0);
    }

   private:
    const int thread;
    uint32_t rows[PIECES];  // in units of 16 bytes
    const uint8_t* scales[SCALES];
    uint32_t loaded[SCALES];  // ue8m0
    uint32_t missing;         // a bit for each of `rows`, then of `scales`
};

// While other warps multiply, a warp needs 6 to 8 cycles to issue an instruction, and a K block lasts 768 cycles (H200). So if all rows exist, a
// copy is two instructions: its address and itself.
template <class Tile, class Schedule>
__device__ __forceinline__ void gather_rows(Tile& tile, Schedule schedule, const GatheredOperands<Tile>& operands, int thread) {
    GatheringThread<Tile> mine(thread);
    Ring<Tile::STAGES> ring;
    for (Work work; schedule.next(work);) {
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

// Replaces gather_rows() for ue8m0 scales: a thread loads the scales of its rows, and stores them a K block later.
template <class Tile, class Schedule>
__device__ __forceinline__ void gather_rows_and_e8m0(Tile& tile, Schedule schedule, const GatheredOperands<Tile>& operands,
                                                     int thread) {
    GatheringThread<Tile> mine(thread);
    Ring<Tile::STAGES> ring;
    for (Work work; schedule.next(work);) {
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

// Replaces gather_rows() where tokens are the columns of wgmma: a thread has pieces of eight rows, and the scale products of a row. These tiles
// wait for weights, so instructions matter less.
template <bool ANY_E8M0, class Tile, class Schedule, class Operands>
__device__ __forceinline__ void gather_columns(Tile& tile, Schedule schedule, const Operands& operands, int thread) {
    constexpr int AHEAD = ScaleReader<ANY_E8M0>::AHEAD, ENTRIES = Tile::WEIGHT_SCALES;
    static_assert(Tile::SCALE_THREADS == Tile::TOKENS);
    GatheringThread<Tile> mine(thread);
    Ring<Tile::STAGES> ring;
    for (Work work; schedule.next(work);) {
        mine.look_up(operands, work);
        ScaleReader<ANY_E8M0> token, weights[ENTRIES];
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
                    tile.scale_product(ring.stage, entry, thread) = token.of(ahead) * weights[entry].of(ahead);
                __syncwarp();
                if (thread % 32 == 0) arrive(&tile.full[ring.stage]);
                ring.advance();
            }
        }
    }
}

// All producer warps call this: the first copies weights, the others copy rows and scales.
template <class Tile, class Schedule, GathersRows Operands>
__device__ __forceinline__ void load(Tile& tile, Schedule schedule, const Operands& operands, int = 0) {
    const int thread = threadIdx.x - Tile::MATH_THREADS;
    if (thread >= 32) {
        if constexpr (Tile::SWAPPED) {
            if (any_e8m0(operands))
                gather_columns<true>(tile, schedule, operands, thread - 32);
            else
                gather_columns<false>(tile, schedule, operands, thread - 32);
        } else {
            if (any_e8m0(operands))
                gather_rows_and_e8m0(tile, schedule, operands, thread - 32);
            else
                gather_rows(tile, schedule, operands, thread - 32);
        }
    } else if (WarpCollective<Schedule> || thread == 0) {
        load_elements(tile, schedule, operands, thread, 0);
    }
}

}  // namespace zoo
