"""Groups of rows on a real device, past 2^31 elements: the last group of a large matrix is that group alone.

ZOO_CUBINS names another folder than the packaged one.
"""

import os

import pytest

from tools.lab.viewed import of_matrices
from zoo.catalog import Zoo
from zoo.packaged import packaged

pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch")
ZOO = Zoo(os.environ["ZOO_CUBINS"]) if "ZOO_CUBINS" in os.environ else packaged

COLUMNS, LAST = 8192, 200
ROWS = 2**31 // COLUMNS + 300
FORMATS = {"mxfp8": (1, 32, "blocked"), "mxfp4": (2, 32, "blocked"), "nvfp4": (2, 16, "blocked"), "fp8b128": (1, 128, "mn_major")}


@pytest.fixture(scope="module")
def x():
    x = torch.empty(ROWS, COLUMNS, device="cuda", dtype=torch.bfloat16)
    for start in range(0, ROWS, 16384):
        x[start : start + 16384].normal_()
    return x


def quantised(name, x, ends, index=None):
    """q as bytes, scales of rows as bytes (rows, ...), and where the last group begins in each."""
    format, padded = name.split(".")[1], name.endswith("padded")
    per_byte, block, layout = FORMATS[format]
    rows, groups = len(x if index is None else index), len(ends)
    result_rows = rows + 128 * groups if padded else rows
    call = {"x": x, "offsets": torch.tensor(ends, device="cuda", dtype=torch.int32), "layout": layout}
    q = torch.full((result_rows, COLUMNS // per_byte), 255, device="cuda", dtype=torch.uint8)
    call["q"] = q if per_byte == 2 else q.view(torch.float8_e4m3fn)
    if layout == "blocked":
        shape = (-(-rows // 128) * 128 + 128 * groups, COLUMNS // block)
        call["scales"] = torch.full(shape, 255, device="cuda", dtype=torch.uint8)
    else:
        call["scales"] = torch.zeros(COLUMNS // block, -(-result_rows // 4) * 4, device="cuda").t()[:result_rows]
    if format == "nvfp4":
        call["tensor_scale"] = torch.tensor([0.002], device="cuda")
    if index is not None:
        call["index"] = index
    if padded:
        bounds = [torch.zeros(groups, device="cuda", dtype=torch.int32) for _ in range(2)]
        call |= dict(zip(("padded_starts", "padded_ends"), bounds, strict=True))
    of_matrices(ZOO).launch(name, **call)
    begins = [0, *ends[:-1]]
    padded_begin = sum(-(-(end - begin) // 128) * 128 for begin, end in zip(begins[:-1], ends[:-1], strict=True))
    if padded:
        assert call["padded_starts"][-1] == padded_begin
        assert call["padded_ends"][-1] == padded_begin + -(-(ends[-1] - begins[-1]) // 128) * 128
    q_begin = padded_begin if padded else begins[-1]
    scales = call["scales"]
    if layout == "blocked":
        scales = scales[padded_begin : padded_begin + -(-LAST // 128) * 128].reshape(-1)
    else:
        scales = scales[q_begin : q_begin + LAST].contiguous()
    return q[q_begin : q_begin + LAST], scales


@pytest.mark.parametrize("gathered", [False, True])
@pytest.mark.parametrize("grouping", ["m_grouped_contiguous", "m_grouped_padded"])
@pytest.mark.parametrize("format", FORMATS)
def test_the_last_group_of_2_to_the_31_elements_is_that_group_alone(x, format, grouping, gathered):
    name = f"quantize.{format}.rows.{grouping}"
    index = torch.arange(ROWS - 1, -1, -1, device="cuda", dtype=torch.int32) if gathered else None
    q, scales = quantised(name, x, [5, ROWS - LAST, ROWS], index)
    alone = x[:LAST].flip(0).contiguous() if gathered else x[-LAST:].contiguous()
    wanted_q, wanted_scales = quantised(name, alone, [LAST])
    assert torch.equal(q, wanted_q)
    assert torch.equal(scales, wanted_scales)
    assert len(torch.unique(q)) > 10
