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
KERNELS = [kernel.name for kernel in ZOO.find("quantize.*") if "formats" in kernel.fields and ".rows.m_grouped" not in kernel.name]
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
    if x.ndim == 3:
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
