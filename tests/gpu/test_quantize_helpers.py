"""Maxima over a grid without a clean workspace, and sizes past 2^31 elements, on a real device.

ZOO_CUBINS names another folder than the packaged one.
"""

import os

import pytest

from tools.lab.viewed import of_matrices
from zoo.benchmark.arguments import describe_arguments, size_symbols
from zoo.catalog import Zoo
from zoo.contract.dtypes import DTYPES
from zoo.packaged import packaged
from zoo.runtime.arrays import ptr

pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch")
ZOO = Zoo(os.environ["ZOO_CUBINS"]) if "ZOO_CUBINS" in os.environ else packaged


def test_amax_is_right_on_every_replay_whatever_the_workspace_holds():
    """Large and small matrices take turns on one workspace, which a run that was aborted may have left in any state."""
    x = [torch.randn(4096, 2048, device="cuda", dtype=torch.bfloat16) * scale for scale in (100, 1, 0, 1e-3)]
    found = [torch.empty(1, device="cuda") for _ in x]
    workspace = torch.empty(2, device="cuda", dtype=torch.int32)
    stream = torch.cuda.Stream()
    plans = [ZOO.prepare("quantize.amax", x=one, amax=amax, workspace=workspace, stream=stream) for one, amax in zip(x, found, strict=True)]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for plan in plans:
            plan(stream)
    wanted = [float(one.abs().max()) for one in x]
    for words in ((0, 0), (-1, -1), (2**31 - 1, 1), (5, -7), (123456789, 987654321)):
        workspace.copy_(torch.tensor(words, dtype=torch.int32))
        for _ in range(20):
            for amax in found:
                amax.fill_(float("nan"))
            graph.replay()
            torch.cuda.synchronize()
            assert [float(amax) for amax in found] == wanted


def test_amax_past_2_to_the_31_elements():
    x = torch.zeros(2**31 // 8192 + 8, 8192, device="cuda", dtype=torch.bfloat16)
    x[-1, -1] = -3
    offsets = torch.tensor([7, len(x) - 1, len(x)], device="cuda", dtype=torch.int32)
    workspace, amax, of_groups = (
        torch.zeros(2, device="cuda", dtype=torch.int32),
        torch.zeros(1, device="cuda"),
        torch.ones(3, device="cuda"),
    )
    ZOO.launch("quantize.amax", x=x, amax=amax, workspace=workspace)
    ZOO.launch("quantize.amax.m_grouped_contiguous", x=x, offsets=offsets, amax=of_groups, workspace=workspace)
    assert amax.tolist() == [3] and of_groups.tolist() == [0, 0, 3]


def _dequantised(kernel, sizes, layout, of_q=None):
    """name -> the bytes of every argument. `of_q`: what q, scales and tensor_scale hold; else random numbers."""
    arrays, keywords = describe_arguments(kernel, sizes, layout, None)
    memory = dict(of_q or {})
    for name, one in arrays.items():
        size = DTYPES[one.dtype].bytes
        if name == "out":
            memory[name] = torch.zeros(*one.shape[:-1], one.shape[-1] * size, device="cuda", dtype=torch.uint8)
        elif name not in memory and one.dtype == "f32":
            memory[name] = torch.rand(one.shape[::-1] if one.by_columns else one.shape, device="cuda").add_(0.5).view(torch.uint8)
        elif name not in memory:
            memory[name] = torch.randint(0, 256, one.shape, device="cuda", dtype=torch.uint8)
    given = {name: ptr(memory[name].data_ptr(), one.shape, one.dtype, one.strides) for name, one in arrays.items()}
    torch.cuda.synchronize()
    ZOO.launch(kernel.name, stream=0, **given, **keywords)
    torch.cuda.synchronize()
    return memory


@pytest.mark.parametrize(
    ("kernel", "layout"),
    [(kernel, layout) for kernel in ZOO.find("dequantize.*") for layout in (kernel.options["layout"].values if kernel.options else [None])],
    ids=lambda given: getattr(given, "name", given),
)
def test_dequantising_past_2_to_the_31_elements(kernel, layout):
    """The last rows of a matrix, or the last of many experts, are those of the same alone."""
    settings = {"layout": layout} if layout else {}
    if kernel.name.endswith(".rows"):
        whole, last, tail = {"R": 2**31 // 8192 + 128, "C": 8192}, {"R": 128, "C": 8192}, 128
    else:
        whole, last, tail = {"E": 513, "R": 2048, "C": 2048, "T": 1}, {"E": 1, "R": 2048, "C": 2048, "T": 1}, 1
    whole, last = ({symbol: sizes[symbol] for symbol in size_symbols(kernel)} for sizes in (whole, last))
    found = _dequantised(kernel, whole, settings)
    ends = {name: found[name][-tail:].contiguous() for name in ("q", "scales")}
    if layout == "mn_major":
        ends["scales"] = found["scales"][:, -tail * 4 :].contiguous()
    elif layout == "blocked" and kernel.name.endswith(".rows"):
        ends["scales"] = found["scales"][-(tail // 128) :].contiguous()  # tiles of 128 rows
    if "tensor_scale" in found:
        ends["tensor_scale"] = found["tensor_scale"]
    assert torch.equal(found["out"][-tail:], _dequantised(kernel, last, settings, ends)["out"])


@pytest.mark.parametrize("name", ["scales.mn_major", "scales.ue8m0_words"])
def test_transposed_scales_past_2_to_the_31(name):
    """The columns of the last rows are those of the same rows alone."""
    rows, columns, output = 2**31 // 1024 + 512, 1024, "transposed" if name == "scales.mn_major" else "words"
    exponents = torch.randint(1, 255, (rows, columns), device="cuda", dtype=torch.int32)
    scales = exponents.bitwise_left_shift_(23).view(torch.float32)
    height, kind = (columns, torch.float32) if output == "transposed" else (columns // 4, torch.int32)
    whole, last = (torch.zeros(height, count, device="cuda", dtype=kind) for count in (rows, 256))
    by_rows = name == "scales.ue8m0_words"
    ZOO.launch(name, scales=scales, **{output: whole if by_rows else whole.t()})
    ZOO.launch(name, scales=scales[-256:], **{output: last if by_rows else last.t()})
    assert last.count_nonzero() == last.numel() and torch.equal(whole[:, -256:], last)


def test_scales_past_2_to_the_31_there_and_back():
    rows, columns, groups = 2**31 // 512 + 300, 512, 3
    scales = torch.randint(1, 256, (rows, columns), device="cuda", dtype=torch.uint8)
    offsets = torch.tensor([5, rows - 200, rows], device="cuda", dtype=torch.int32)
    blocked = torch.full((-(-(rows + 128 * groups) // 128) * 128, columns), 255, device="cuda", dtype=torch.uint8)
    back = torch.zeros_like(scales)
    of_matrices(ZOO).launch("scales.blocked.m_grouped_contiguous", scales=scales, offsets=offsets, blocked=blocked)
    of_matrices(ZOO).launch("scales.unblocked.m_grouped_contiguous", blocked=blocked, offsets=offsets, scales=back)
    assert torch.equal(scales, back)
    assert int((blocked != 0).sum()) == scales.numel()  # all else is written as zero
    whole = torch.empty(-(-rows // 128) * 128, columns, device="cuda", dtype=torch.uint8)
    of_matrices(ZOO).launch("scales.blocked", scales=scales, blocked=whole)
    of_matrices(ZOO).launch("scales.unblocked", blocked=whole, scales=back.zero_())
    assert torch.equal(scales, back)


def test_scales_of_column_groups_past_2_to_the_31_there_and_back():
    rows, sizes = 2**31 // 16385 + 300, (5, 8192 * 32 - 7, 8192 * 32)
    columns = sum(-(-size // 32) for size in sizes)
    scales = torch.randint(1, 256, (rows, columns), device="cuda", dtype=torch.uint8)
    offsets = torch.tensor(sizes, device="cuda").cumsum(0).to(torch.int32)
    tiles = -(-(columns - len(sizes)) // 4) + len(sizes)
    blocked = torch.full((-(-rows // 128) * 128, 4 * tiles), 255, device="cuda", dtype=torch.uint8)
    back = torch.zeros_like(scales)
    of_matrices(ZOO).launch("scales.blocked.k_grouped", scales=scales, offsets=offsets, blocked=blocked, block=32)
    of_matrices(ZOO).launch("scales.unblocked.k_grouped", blocked=blocked, offsets=offsets, scales=back, block=32)
    assert torch.equal(scales, back)
    assert int((blocked != 0).sum()) == scales.numel()  # all else is written as zero
