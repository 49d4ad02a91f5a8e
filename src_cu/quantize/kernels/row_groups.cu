// quantize.<format>.rows.m_grouped_contiguous and .m_grouped_padded: quantize.<format>.rows of groups of rows. Padded groups
// end with rows of zeros up to a multiple of 128 rows. Contiguous groups pad only blocked scales, because every group has
// scale tiles of its own. Made of:
//
//   common/formats.cuh             which format the dtypes of elements and scales choose
//   groups/grouped_rows.cuh        the kernel: which warp quantises which rows
//   groups/row_groups.cuh          which group a row belongs to, where padding moves it
//   groups/fill_padding.cuh        which warps write zeros
//   scales/group_scales.cuh        where scales are
//   rows/matrix.cuh                what a cell is
//   rows/whole_blocks.cuh          how a lane quantises its segment

#include "common/formats.cuh"
#include "quantize/groups/grouped_rows.cuh"

using Traits = zoo::FewRegisterFormatOf<Variant::q, Variant::scales>;
using Scales = zoo::GroupScales<Traits::Type>;

#ifdef ZOO_WITH_PADDED
constexpr bool PADDED = true;
#else
constexpr bool PADDED = false;
#endif

// x_stride in elements, q_stride in bytes. scales_stride: from row to row; blocked: from one row of tiles to the next;
// mn_major: from block to block.
extern "C" __global__ void __launch_bounds__(Variant::THREADS, Variant::CTAS) ZOO_KERNEL(ZOO_PARAMETERS) {
    ZOO_ABSENT_PARAMETERS
    zoo::quantize_row_groups<Variant::x, PADDED, Variant::THREADS, Traits>(
        rule, tensor_scale_step, {offsets, index, M, G}, Scales{scales, scales_stride, plain != 0}, fill_share, x, q,
        padded_starts, padded_ends, K, x_stride, q_stride);
}
