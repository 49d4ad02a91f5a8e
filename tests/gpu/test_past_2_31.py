"""Every quantiser on a matrix of more than 2^31 elements of each type, on a real device: its last rows come out as they do alone.

Groups of rows have tests of their own, with a gather: test_quantize_groups.py.

ZOO_CUBINS names another folder than the packaged one.
"""

import os
from fractions import Fraction

import pytest

from zoo.benchmark.arguments import describe_arguments, size_symbols
from zoo.benchmark.groups import Groups
from zoo.catalog import Zoo
from zoo.contract.dtypes import DTYPES
from zoo.packaged import packaged
from zoo.runtime.arrays import ptr

pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch")
ZOO = Zoo(os.environ["ZOO_CUBINS"]) if "ZOO_CUBINS" in os.environ else packaged
KERNELS = [
    kernel.name
    for kernel in ZOO.find("quantize.*")
    if "formats" in kernel.fields and ".rows.m_grouped" not in kernel.name and not kernel.name.endswith("swiglu_backward")
]
WIDE, TAIL = 8192, 256
ROWS = 2**31 // WIDE + TAIL
TYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}


@pytest.fixture(scope="module", params=TYPES)
def matrix(request):
    x = torch.empty(ROWS, WIDE, device="cuda", dtype=TYPES[request.param])
    for start in range(0, ROWS, 16384):
        x[start : start + 16384].normal_()
    yield x
    del x
    torch.cuda.empty_cache()


def launched(kernel, x, group_sizes=()):
    """name -> the bytes of an output, with the dimensions of its array."""
    sizes = {"M": x.shape[0], "K": x.shape[-1], "COLUMNS": x.shape[-1], "T": 1}
    if "E" in size_symbols(kernel):
        sizes |= {"E": x.shape[0], "N": x.shape[1]}
    settings = {"x": next(name for name, dtype in TYPES.items() if dtype == x.dtype)} | {
        name: one.dtypes[0] for name, one in kernel.arguments.items() if one.optional and name != "index"
    }
    sizes = {symbol: sizes[symbol] for symbol in size_symbols(kernel)}
    arrays, keywords = describe_arguments(kernel, sizes, settings, Groups(len(group_sizes)) if group_sizes else None)
    memory = {}
    for name, one in arrays.items():
        if name == "x":
            memory[name] = x
        elif name == "offsets":
            memory[name] = torch.tensor(group_sizes, device="cuda").cumsum(0).to(torch.int32)
        else:
            *rows, last = one.shape if len(one.shape) > 1 else (*one.shape, 1)
            memory[name] = torch.zeros(*rows, last * DTYPES[one.dtype].bytes, device="cuda", dtype=torch.uint8)
        if kernel.arguments[name].access == "read" and one.dtype == "f32":  # the tensor scale, or an amax
            memory[name].view(torch.float32).fill_(0.25)
    given = {name: ptr(memory[name].data_ptr(), one.shape, one.dtype) for name, one in arrays.items()}
    torch.cuda.synchronize()
    ZOO.launch(kernel.name, stream=0, **given, **keywords)
    torch.cuda.synchronize()
    return {name: memory[name] for name in arrays if kernel.arguments[name].access == "write" and name not in ("amax", "tensor_scale")}


def row_bytes(kernel, output):
    """How many bytes of a row of a transposed output a row of x takes."""
    formats = kernel.fields["formats"]
    if output.startswith("q"):
        return Fraction(1, 2 if formats.endswith("fp4") else 1)
    return Fraction(4 if formats == "fp8b128" else 1, {"fp8b128": 128, "nvfp4": 16}.get(formats, 32))


@pytest.mark.parametrize("name", KERNELS)
def test_the_end_of_a_matrix_past_2_to_the_31_elements(matrix, name):
    kernel = ZOO.kernel(name)
    if not any(TYPES[dtype] == matrix.dtype for dtype in kernel.arguments["x"].dtypes):
        pytest.skip(f"{name} takes x of {', '.join(kernel.arguments['x'].dtypes)}")
    stack = "E" in size_symbols(kernel)
    grouped = "grouping" in kernel.fields and not stack
    x, tail = (matrix[: 33 * 7936].view(33, 7936, WIDE), 1) if stack else (matrix, TAIL)
    x = x.view(ROWS, 2, WIDE // 2) if name.endswith(".swiglu") else x
    whole = launched(kernel, x, (128, ROWS - 128 - TAIL, TAIL) if grouped else ())
    alone = launched(kernel, x[-tail:].clone(), (TAIL,) if grouped else ())
    for output, got in whole.items():
        if output.startswith("padded"):
            assert int(got.view(torch.int32)[-1]) == (ROWS if output == "padded_ends" else ROWS - TAIL)
            continue
        if not stack and (kernel.fields["direction"] == "cols" or output.endswith("_cols")):
            begin, end = (int(rows * row_bytes(kernel, output)) for rows in (ROWS - TAIL, ROWS))
            assert torch.equal(got[:, begin:end], alone[output][:, : end - begin])
        else:
            assert torch.equal(got[len(x) - tail : len(x)], alone[output][:tail])
        assert bool(alone[output].any())


@pytest.fixture
def numbers():
    x = torch.empty(ROWS, WIDE, device="cuda", dtype=torch.bfloat16)
    for part in x.split(16384):
        part.normal_()
    return x


def test_the_end_of_rms_norm_past_2_to_the_31_elements(numbers):
    import zoo.torch  # noqa: F401

    ops, weight = torch.ops.zoo, torch.rand(WIDE, device="cuda").bfloat16()
    tail, rstd = numbers[-TAIL:].clone(), torch.rand(ROWS, device="cuda")
    assert torch.equal(ops.norm_rows(numbers, weight, eps=1e-6)[-TAIL:], ops.norm_rows(tail, weight, eps=1e-6))
    for whole, alone in zip(ops.norm_fp8b128_rows(numbers, weight, eps=1e-6), ops.norm_fp8b128_rows(tail, weight, eps=1e-6), strict=True):
        assert torch.equal(whole[-TAIL:].view(torch.uint8), alone.view(torch.uint8))
    whole, alone = ops.norm_backward(numbers, numbers, weight, rstd), ops.norm_backward(tail, tail, weight, rstd[-TAIL:].clone())
    assert torch.equal(whole[-TAIL:], alone) and alone.any()


def test_the_end_of_a_combination_past_2_to_the_31_elements(numbers):
    import zoo.torch  # noqa: F401

    ops, rows = torch.ops.zoo, torch.arange(ROWS, device="cuda", dtype=torch.int32)[:, None]
    tail, alone = numbers[-TAIL:].clone(), rows[:TAIL].contiguous()
    assert torch.equal(ops.experts_combine(numbers, rows)[-TAIL:], tail)
    assert torch.equal(ops.experts_combine_backward(numbers, rows, R=ROWS)[-TAIL:], ops.experts_combine_backward(tail, alone, R=TAIL))


def test_the_end_of_the_backward_of_swiglu_past_2_to_the_31_elements(numbers):
    import zoo.torch  # noqa: F401

    op = torch.ops.zoo.quantize_fp8b128_both_m_grouped_padded_swiglu_backward
    half = ROWS // 2  # h has the elements of `numbers`
    h, d_act = numbers[: 2 * half].view(half, 2, WIDE), numbers[:half]
    offsets = torch.tensor([half - TAIL, half], device="cuda", dtype=torch.int32)
    whole = op(d_act, h, offsets)
    alone = op(*(one[-TAIL:].clone() for one in (d_act, h)), torch.tensor([0, TAIL], device="cuda", dtype=torch.int32))
    for index in (0, 1):  # rows and their scales
        assert torch.equal(whole[index][-TAIL:].view(torch.uint8), alone[index].view(torch.uint8))
    first = -(-(half - TAIL) // 128) * 128  # of the last group in the columns
    for index in (2, 4):
        assert torch.equal(whole[index][:, first : first + TAIL].view(torch.uint8), alone[index][:, :TAIL].view(torch.uint8))
