// gemm.{fp8_nvfp4, fp8_mxfp4, bf16_nvfp4, bf16_mxfp4}.<grouping>.{swiglu, swiglu_fp8b128}[_stored]: h = activation(A gate^T) * (A up^T), the first
// product of an expert, with 4-bit weights on Hopper. A tile of D has 64 columns of h: 128 weight rows, which alternate
// between eight gates and eight ups. Weights are packed, or they are a checkpoint's rows of codes and rows of scales. Stored gates are all first,
// or each up follows its gate.
//
// The files of a SwiGLU product and the question that each answers:
//
//     gated/pipeline.cuh        which parts does a variant have, which role does each warp have, and how do the roles synchronise?
//     gated/schedule.cuh        which tiles does a CTA compute, and which tiles share scales of h?
//     gated/epilogue.cuh        how do sums become h, and h 16 bits?
//     gated/fp8_output.cuh      how does h become e4m3 with scales?
//     tile.cuh                  what is in shared memory (FP8 tokens)?
//     mainloop.cuh              how are FP8 tokens multiplied along K?
//     weights/packed.cuh        how do packed weights become e4m3?
//     weights/stored_words.cuh  how do stored weights become e4m3?
//     weights/stored.cuh        where are stored weights and their scales?
//     bf16/mainloop.cuh         what is in shared memory, and how are bf16 tokens multiplied along K?
//     bf16/weights.cuh          how do packed and stored weights become bf16?
//     operands.cuh              how do operands reach shared memory?
//     epilogue.cuh              what are the factors of a token and of a weight row?
//     gemm/epilogue/activation.cuh, branchless_fp8b128.cuh      what is the activation, and the scale of 128 columns?
//     gemm/schedule/grouped_schedule.cuh, tile_schedule.cuh     where are the rows of a group, and which tile is next?

#include <cstdint>

#include "common/tensor_copy.cuh"

namespace zoo {
#ifdef ZOO_WITH_STORED
constexpr bool STORED = true;
#else
constexpr bool STORED = false;
#endif
}  // namespace zoo

#include "gemm/hopper_w4/gated/pipeline.cuh"

//     rows             rows of the only matrix or of a slot, else 0
//     a_rows           rows of A, where they are gathered
//     box_rows         rows of A in one tensor copy
//     weight_parts     number of weight parts of B, 64 rows each
//     chunks           number of chunks along K, 64 columns each
//     b_scale_...      bytes from scale rows of a group to the next group's, from row to row, and of a row
extern "C" __global__ void __launch_bounds__(zoo::Tile::THREADS, Variant::CTAS) ZOO_KERNEL(ZOO_PARAMETERS) {
    ZOO_ABSENT_PARAMETERS
    extern __shared__ __align__(1024) uint8_t memory[];
#if defined(ZOO_WITH_STORED)
    const zoo::StoredScales<zoo::GateAndUp> stored_scales{b_scale,       b_scale_group, b_scale_row,         N,
                                                          b_scale_bytes, largest,       {N / 2, interleaved}};
    const zoo::StoredOperands<zoo::Tile> operands{
        {a,
         {nullptr, weight_parts, chunks},
         box_rows,
         zoo::token_scales<zoo::Tile>(a_block_scale, a_scale_row, a_scale_block, a_scale_group, zoo::ceil_div(chunks, 2))},
        b,
        stored_scales};
#elif defined(ZOO_WITH_SCALE128)  // token_scales() would change cubins
    const zoo::FourBitOperands<zoo::Tile> operands{
        a,
        {b, weight_parts, chunks},
        box_rows,
        {a_block_scale, a_scale_row, a_scale_block, a_scale_group, zoo::ceil_div(chunks, 2)}};
#else
    const zoo::FourBitOperands<zoo::Tile> operands{a, {b, weight_parts, chunks}, box_rows};
#endif
    const zoo::GatheredRows gathered{a_first, Variant::TOKEN_BYTES * a_stride, a_rows, Variant::TOKEN_BYTES * K, index};
    const zoo::GatedResult<zoo::FORMAT, zoo::STORED> result{
        {d, d_stride, d_type, N, zoo::OF_BF16 ? nullptr : a_scale, zoo::Tile::GATHERS ? index : nullptr, a_rows, alpha, largest,
         bias, bias_is_bf16 != 0, row_scale},
        alphas,
        interleaved != 0,
        activation != zoo::ActivationKind::silu,
        zoo::Activation(activation, limit)};
    const zoo::Fp8OutputArguments q{
        scales,      scales_group, scales_row,           scales_block,     ends_or_counts != nullptr ? rows : 0,
        {pow2 != 0}, known_scale,  one_known_scale != 0, in_fragments != 0};
    const zoo::Schedule schedule(zoo::Rows{ends_or_counts, rows}, groups, N, tiles_per_scale,
                                 zoo::ceil_div(chunks, zoo::Tile::CHUNKS));
    reinterpret_cast<zoo::Pipeline*>(memory)->run(schedule, operands, gathered, result, q);
}
