"""Kernels in CuTe DSL, which needs no GPU to compile them: an elementwise one, a copy by cp.async, a matrix product by TMA and wgmma."""

import cutlass
import cutlass.utils.hopper_helpers as hopper
from cutlass import cute
from cutlass.cute.nvgpu import cpasync, warpgroup
from cutlass.memory import SmemAllocator
from cutlass.tensor_utils import LayoutEnum

THREADS = 128
M, N, K = 64, 64, 64


@cute.kernel
def scale_kernel(x: cute.Tensor, y: cute.Tensor, factor: cutlass.Float32, limit: cutlass.Constexpr):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    place = block * THREADS + thread
    if place < cute.size(x):
        value = x[place].to(cutlass.Float32) * factor
        if value > limit:
            value = cutlass.Float32(limit)
        y[place] = value.to(y.element_type)


@cute.jit
def scale(x: cute.Tensor, y: cute.Tensor, factor: cutlass.Float32, limit: cutlass.Constexpr):
    scale_kernel(x, y, factor, limit).launch(grid=[cute.ceil_div(cute.size(x), THREADS), 1, 1], block=[THREADS, 1, 1])


@cute.kernel
def reverse_kernel(x: cute.Tensor, y: cute.Tensor, copy: cute.TiledCopy, waits: cutlass.Constexpr):
    thread, _, _ = cute.arch.thread_idx()
    tile = SmemAllocator().allocate_tensor(x.element_type, x.layout, 16)
    own = copy.get_slice(thread)
    cute.copy(copy, own.partition_S(x), own.partition_D(tile))
    cute.arch.cp_async_commit_group()
    if cutlass.const_expr(waits):
        cute.arch.cp_async_wait_group(0)
    cute.arch.sync_threads()
    for row in cutlass.range_constexpr(x.shape[0]):
        y[row, thread] = tile[row, x.shape[1] - 1 - thread]


@cute.jit
def reverse(x: cute.Tensor, y: cute.Tensor, waits: cutlass.Constexpr):
    """Rows of THREADS elements, each from its end."""
    atom = cute.make_copy_atom(cpasync.CopyG2SOp(), x.element_type, num_bits_per_copy=128)
    threads = cute.make_layout((4, THREADS // 4), stride=(THREADS // 4, 1))
    copy = cute.make_tiled_copy_tv(atom, threads, cute.make_layout((1, 4)))
    reverse_kernel(x, y, copy, waits).launch(grid=[1, 1, 1], block=[THREADS, 1, 1])


@cute.kernel
def product_kernel(
    mma: cute.TiledMma,
    load_a: cute.CopyAtom,
    a: cute.Tensor,
    load_b: cute.CopyAtom,
    b: cute.Tensor,
    c: cute.Tensor,
    layout_a: cute.ComposedLayout,
    layout_b: cute.ComposedLayout,
):
    thread, _, _ = cute.arch.thread_idx()
    memory = SmemAllocator()
    barrier = memory.allocate_array(cutlass.Int64, 1)
    tile_a = memory.allocate_tensor(cutlass.Float16, layout_a.outer, 1024, swizzle=layout_a.inner)
    tile_b = memory.allocate_tensor(cutlass.Float16, layout_b.outer, 1024, swizzle=layout_b.inner)
    if thread == 0:
        cute.arch.mbarrier_init(barrier, 1)
        cute.arch.mbarrier_init_fence()
    cute.arch.sync_threads()
    copies = []
    for load, tile, whole in ((load_a, tile_a, a), (load_b, tile_b, b)):
        parts = cpasync.tma_partition(load, 0, cute.make_layout(1), cute.group_modes(tile, 0, 2), cute.group_modes(whole, 0, 2))
        copies.append((load, parts))
    if cute.arch.make_warp_uniform(thread // 32) == 0:
        with cute.arch.elect_one():
            cute.arch.mbarrier_arrive_and_expect_tx(barrier, (M + N) * K * 2)
        for load, (shared, whole) in copies:
            cute.copy(load, whole, shared[None, 0], tma_bar_ptr=barrier)
    cute.arch.mbarrier_wait(barrier, 0)
    own = mma.get_slice(thread // 128)
    operand_a, operand_b = mma.make_fragment_A(own.partition_A(tile_a)), mma.make_fragment_B(own.partition_B(tile_b))
    sums = cute.make_rmem_tensor(mma.partition_shape_C((M, N)), cutlass.Float32)
    mma.set(warpgroup.Field.ACCUMULATE, False)
    warpgroup.fence()
    for step in cutlass.range_constexpr(cute.size(operand_a, mode=[2])):
        cute.gemm(mma, sums, operand_a[None, None, step, 0], operand_b[None, None, step, 0], sums)
        mma.set(warpgroup.Field.ACCUMULATE, True)
    warpgroup.commit_group()
    warpgroup.wait_group(0)
    cute.autovec_copy(sums, mma.get_slice(thread).partition_C(c))


@cute.jit
def product(a: cute.Tensor, b: cute.Tensor, c: cute.Tensor):
    """c = a b^T for one tile of M x N x K."""
    major = LayoutEnum.ROW_MAJOR
    mma = hopper.make_trivial_tiled_mma(
        cutlass.Float16, cutlass.Float16, major.sm90_mma_major_mode(), major.sm90_mma_major_mode(), cutlass.Float32, (1, 1, 1), (64, N)
    )
    layout_a = hopper.make_smem_layout_a(major, (M, N, K), cutlass.Float16, 1)
    layout_b = hopper.make_smem_layout_b(major, (M, N, K), cutlass.Float16, 1)
    load = cpasync.CopyBulkTensorTileG2SOp()
    load_a, whole_a = cpasync.make_tiled_tma_atom(load, a, cute.slice_(layout_a, (None, None, 0)), (M, K))
    load_b, whole_b = cpasync.make_tiled_tma_atom(load, b, cute.slice_(layout_b, (None, None, 0)), (N, K))
    product_kernel(mma, load_a, whole_a, load_b, whole_b, c, layout_a, layout_b).launch(grid=[1, 1, 1], block=[THREADS, 1, 1])
