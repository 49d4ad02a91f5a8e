// Where a GEMM's operands come from: elements by tensor copies, scales read by a thread for each row, or those of A by one copy
// for a whole tile where they lie so.
//
// Scales may lie anywhere: row_stride and block_stride, in bytes, say where. So row-major scales and those with M contiguous are
// the same code, and nothing is transposed beforehand. They are f32, or ue8m0 and then become f32 on their way: what multiplies knows
// of f32 alone.
#pragma once

#include <cstdint>

#include "common/e8m0.cuh"
#include "common/tensor_copy.cuh"
#include "gemm/pipeline/fp8b128_tile.cuh"
#include "gemm/schedule/tile_order.cuh"

namespace zoo {

struct Scales {
    const uint8_t* first;
    int64_t row_stride, block_stride;
    int rows;
    bool are_bytes;
};

__device__ __forceinline__ uint32_t read_scale(const uint8_t* place, bool is_byte) {
    uint32_t bits;
    if (is_byte)
        asm volatile("ld.global.u8 %0, [%1];" : "=r"(bits) : "l"(place));
    else
        asm volatile("ld.global.b32 %0, [%1];" : "=r"(bits) : "l"(place));
    return bits;
}
__device__ __forceinline__ float scale_of(uint32_t bits, bool is_byte) {
    return is_byte ? e8m0_value(bits) : __uint_as_float(bits);
}

// The scales of one row, block after block of K, read AHEAD blocks at a time, and as many before they are used; zeros for a
// row that does not exist, of bytes what a zero is. EITHER: f32 or bytes, as the launch says; else f32, and nothing is asked.
template <bool EITHER, int AHEAD_ = 2>
class RowScales {
   public:
    static constexpr int AHEAD = AHEAD_;

    __device__ __forceinline__ void begin(const Scales& scales, int row, int first_block) {
        stride = scales.block_stride;
        next = row < scales.rows ? scales.first + row * scales.row_stride + first_block * stride : nullptr;
        are_bytes = EITHER && scales.are_bytes;
    }
    // So many blocks are left, from the next on.
    __device__ __forceinline__ void read(int left) {
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            now[i] = scale_of(soon[i], are_bytes);
            soon[i] = 0;
            if (next == nullptr || i >= left) continue;
            soon[i] = read_scale(next, are_bytes);
            next += stride;
        }
    }
    __device__ __forceinline__ float of(int which) const { return now[which]; }

   private:
    const uint8_t* next = nullptr;
    int64_t stride = 0;
    bool are_bytes = false;
    float now[AHEAD];
    uint32_t soon[AHEAD] = {};
};

// Either operand's.
template <class Operands>
__device__ __forceinline__ bool has_bytes(const Operands& operands) {
    return operands.a_scales.are_bytes || operands.b_scales.are_bytes;
}

// What brings a block of a tile: boxes by the copying thread, or less of them where other threads copy. Scales: begin_token(), begin_weight().
template <class Operands, class Tile>
concept OperandsOf = requires(const Operands& operands, Tile& tile, const Work& work) {
    operands.prefetch_maps();
    operands.load_weights(tile, 0, work, 0);
    operands.load_tokens(tile, 0, work, 0);
};

// A (M, K); B (N, K) for each group, one after the other. Where each group has rows of A of its own, `tokens` of them, its
// scales lie apart, too; elsewhere `tokens` and a_scales_group_stride are 0.
template <class Tile>
struct Operands {
    const TensorMap &a, &b;
    Scales a_scales, b_scales;  // of the first group
    int64_t a_scales_group_stride, b_scales_group_stride;
    int tokens, weights;  // of a group

    __device__ __forceinline__ void prefetch_maps() const {
        prefetch(a);
        prefetch(b);
    }

    // By one thread, at any time: some of its first blocks.
    __device__ __forceinline__ void prefetch_weights(const Work& work, int blocks) const {
        for (int block = work.first_block; block < min(work.end_block, work.first_block + blocks); block++)
            prefetch_box(b, block * SCALE_BLOCK, work.group * weights + work.weight);
    }

    // By some threads, at any time: a block of its tokens and their scales.
    __device__ __forceinline__ void prefetch_tokens(const Work& work, int block, int thread, int threads) const {
        if (thread == 0) prefetch_box(a, block * SCALE_BLOCK, work.token);
        for (int row = work.token + thread; row < min(work.token + Tile::TOKENS, a_scales.rows); row += threads)
            prefetch(a_scales.first + row * a_scales.row_stride + block * a_scales.block_stride);
    }

    // By one thread: one block of K of a tile, first its weights. `token_rows`: that all boxes of tokens bring to a stage.
    __device__ __forceinline__ void load_weights(Tile& tile, int stage, const Work& work, int block,
                                                 int token_rows = Tile::TOKENS) const {
        arrive_expecting_bytes(&tile.full[stage], (Tile::WEIGHTS + token_rows) * SCALE_BLOCK);
        load_box(tile.weights[stage], b, block * SCALE_BLOCK, work.group * weights + work.weight, &tile.full[stage]);
    }
    __device__ __forceinline__ void load_tokens(Tile& tile, int stage, const Work& work, int block) const {
        load_box(tile.tokens[stage], a, block * SCALE_BLOCK, work.token, &tile.full[stage]);
    }

    // The scales of a row of the tile, of A or of B.
    __device__ __forceinline__ void begin_token(auto& scales, const Work& work, int row) const {
        scales.begin(of_group(a_scales, work, a_scales_group_stride), work.token - work.group * tokens + row, work.first_block);
    }
    __device__ __forceinline__ void begin_weight(auto& scales, const Work& work, int row) const {
        const int scale = Tile::WEIGHTS_AN_ENTRY == SCALE_BLOCK ? work.weight / SCALE_BLOCK + row
                                                                : (work.weight + row * Tile::WEIGHTS_AN_ENTRY) / SCALE_BLOCK;
        scales.begin(of_group(b_scales, work, b_scales_group_stride), scale, work.first_block);
    }

    // The first block's scales of the tile's rows of A, where those of every block can be copied at once; else null.
    __device__ __forceinline__ const uint8_t* token_scales_to_copy(const Work& work) const {
        const Scales scales = of_group(a_scales, work, a_scales_group_stride);
        const int row = work.token - work.group * tokens;
        const uint8_t* first = scales.first + row * int64_t(4) + work.first_block * scales.block_stride;
        const bool together = !scales.are_bytes && scales.row_stride == 4 && row + Tile::TOKENS <= scales.rows;
        const bool aligned = reinterpret_cast<uint64_t>(first) % 16 == 0 &&
                             (scales.block_stride % 16 == 0 || work.end_block - work.first_block == 1);
        return together && aligned ? first : nullptr;
    }

   protected:
    static __device__ __forceinline__ Scales of_group(Scales scales, const Work& work, int64_t group_stride) {
        scales.first += work.group * group_stride;
        return scales;
    }
};

// Where tokens are few, boxes have no more rows than there are: those that lie outside the tensor take longer than others.
template <class Tile>
struct FewOperands : Operands<Tile> {
    __device__ __forceinline__ int token_rows() const { return min(Tile::TOKENS, this->a_scales.rows); }

    __device__ __forceinline__ void load_weights(Tile& tile, int stage, const Work& work, int block) const {
        Operands<Tile>::load_weights(tile, stage, work, block, token_rows());
    }
};

// The same where there may be several tiles of them, all about as high.
template <class Tile>
struct EvenOperands : Operands<Tile> {
    int rows = EvenTiles<Tile>(this->a_scales.rows).box();  // worked out once: who copies has no time for it

    __device__ __forceinline__ int token_rows() const { return rows; }

    __device__ __forceinline__ void load_weights(Tile& tile, int stage, const Work& work, int block) const {
        Operands<Tile>::load_weights(tile, stage, work, block, rows);
    }
};

// By all threads, before they synchronise: the rows that no box brings are zero from the start. No result of theirs is stored, so any
// values would do; zeros are what makes a read of shared memory that nobody wrote an error elsewhere, to initcheck and the emulator.
template <class Tile, class Operands>
__device__ __forceinline__ void clear_missing_tokens(Tile& tile, const Operands& operands) {
    if constexpr (requires { operands.token_rows(); }) {
        constexpr int PIECES = SCALE_BLOCK / 16, ALL = Tile::TOKENS * PIECES;
        const int first = operands.token_rows() * PIECES + threadIdx.x;
        for (int piece = first; piece < ALL; piece += Tile::THREADS)
#pragma unroll
            for (int stage = 0; stage < Tile::STAGES; stage++) reinterpret_cast<uint4*>(tile.tokens[stage])[piece] = uint4{};
        let_copies_see_shared_memory();
    }
}

}  // namespace zoo
