"""Products with 4-bit weights whose A, D or h have more than 2^31 elements, or whose weights more than 2^32 bytes, on a real device.

Of rows before and behind each power of two the last 128 columns are held to zoo.reference, to the bit. Every cubin runs for one of the kernels
and variants that it serves, which its bytes draw, and every kernel by one variant at least. ZOO_CUBINS names another folder than the packaged one.
"""

import os

import ml_dtypes
import numpy as np
import pytest

from tools.lab.viewed import of_matrices
from zoo.catalog import Zoo
from zoo.checks.layouts import in_rows
from zoo.packaged import packaged
from zoo.reference.block_scaled_epilogues import Gates
from zoo.reference.four_bit_gated import Steps, h_of_sums, quantised_in_blocks
from zoo.reference.four_bit_gemm import factors_of, finished, gemm_bf16_by_four_bit, gemm_fp8_by_four_bit
from zoo.reference.four_bit_weights import mxfp4_as_bf16, mxfp4_as_e4m3, nvfp4_as_bf16, nvfp4_as_e4m3
from zoo.reference.fragments import chunk_shape, permuted_columns
from zoo.reference.gemm import rounded

pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch")
ZOO = Zoo(os.environ["ZOO_CUBINS"]) if "ZOO_CUBINS" in os.environ else packaged
DEVICE, PAST, TAIL = "cuda", 2**31, 200
WIDE, DEEP = 129280, 2048  # columns of a result, and K, of which so many rows are past 2^31 elements
SHAPES = {"result": (PAST // WIDE // 4 * 4 + 2 * TAIL, WIDE, 64), "A": (PAST // DEEP + 2 * TAIL, 144, DEEP)}  # M, columns, K
EXPERTS, WEIGHTS = 520, 4096  # of WEIGHTS x WEIGHTS, 8 MiB of codes each
SCALES_APART = 2**32 // (EXPERTS - 1) // 16 * 16 + 16  # bytes from one expert's scales to the next one's
NAN = {"nvfp4": 0x7F, "mxfp4": 0xFF}
ORDER = Gates("halves", "silu")


@pytest.fixture(autouse=True, scope="module")
def hopper():
    if torch.cuda.get_device_capability()[0] != 9:
        pytest.skip("4-bit weights are Hopper's")
    yield
    torch.cuda.empty_cache()


def ways():
    """(kernel, variant) of every cubin, and of every kernel that they leave out."""
    kernels = [one for tokens in ("fp8", "bf16") for form in NAN for one in ZOO.find(op="gemm", formats=f"{tokens}_{form}")]
    served: dict[str, list[tuple[str, str]]] = {}
    for kernel in kernels:
        for variant in kernel.variants:
            if variant.arch == "sm_90a":
                served.setdefault(variant.sha256, []).append((kernel.name, variant.name))
    drawn = [names[int(digest, 16) % len(names)] for digest, names in served.items()]
    others = {kernel.name for kernel in kernels} - {name for name, _ in drawn}
    return sorted([*drawn, *((name, ZOO.kernel(name).variants[-1].name) for name in others)])


WAYS = ways()


class Product:
    """One call and what its sampled rows must be."""

    def __init__(self, name, variant=None):
        self.kernel, self.variant = ZOO.kernel(name), variant
        self.constants = next((one.constants for one in self.kernel.variants if one.name == variant), {})
        self.grouping, extra = self.kernel.fields["grouping"], self.kernel.fields.get("extra", "")
        self.tokens, self.form = self.kernel.fields["formats"].split("_")
        self.stored, self.gated, self.quantised = extra.endswith("stored"), extra.startswith("swiglu"), "fp8b128" in extra
        self.numbers = torch.Generator(DEVICE).manual_seed(31)
        self.given = {"gates": ORDER.order} if self.gated else {}
        self.scales_of_a = None

    def rows_of_a(self, rows, K):
        dtype = torch.bfloat16 if self.tokens == "bf16" else torch.float8_e4m3fn
        a = torch.empty(rows, K, device=DEVICE, dtype=dtype)
        for part in a.view(-1).split(2**28):
            part.copy_(torch.randn(part.shape, device=DEVICE, generator=self.numbers))
        return a

    def bytes_of(self, least, end, *shape):
        return torch.randint(least, end, shape, device=DEVICE, generator=self.numbers, dtype=torch.uint8)

    def make_weights(self, groups, N, K):
        block, (least, end) = (16, (0x20, 0x31)) if self.form == "nvfp4" else (32, (118, 122))
        self.q, self.scales = self.bytes_of(0, 256, groups, N, K // 2), self.bytes_of(least, end, groups, N, K // block)
        if self.form == "mxfp4":
            whole = torch.full((groups, -(-N // 64) * 64), 127, device=DEVICE, dtype=torch.uint8)
            whole[:, :N] = self.scales.amax(2)
            self.given["b_row_scale"] = whole.view(torch.float8_e8m0fnu)
        if self.stored:
            self.given |= {"b": self.q, "b_scale": self.as_scales(self.scales)}
            return
        b = torch.empty(groups, -(-N // 64), -(-K // 64), *chunk_shape(block, self.tokens), device=DEVICE, dtype=torch.uint8)
        of_rows = {"row_scale": self.given["b_row_scale"]} if self.form == "mxfp4" else {}
        how = {"gates": ORDER.order if self.gated else "plain", "tokens": self.tokens}
        of_matrices(packaged).launch(f"pack.{self.form}.fragments", q=self.q, scales=self.as_scales(self.scales), b=b, **how, **of_rows)
        self.given["b"] = b

    def as_scales(self, array):
        return array.view(torch.float8_e4m3fn if self.form == "nvfp4" else torch.float8_e8m0fnu)

    def make_results(self, rows, columns):
        """All bytes are 0xFF, NaN."""
        if self.quantised:
            self.results = {
                "q": torch.empty(rows, columns, device=DEVICE, dtype=torch.float8_e4m3fn),
                "scales": torch.empty(rows, -(-columns // 128), device=DEVICE),
            }
            if not self.stored and columns % 32:
                self.given["columns"] = columns
        else:
            self.results = {"d": torch.empty(rows, columns, device=DEVICE, dtype=torch.bfloat16)}
        for one in self.results.values():
            one.view(torch.uint8).fill_(0xFF)

    def make_way(self, rows, columns, K, groups):
        """What the variant wants besides."""
        if self.constants.get("PROMOTION") == 1:  # where rows are many they lie so far apart that the last scales are past 2^31, too
            blocks, pitch = -(-K // 128), K + 8 if rows * K > PAST else -(-K // 128)
            self.scales_of_a = torch.empty(rows * pitch, device=DEVICE).as_strided((rows, blocks), (pitch, 1))
            self.scales_of_a.copy_(torch.exp2(torch.rand((rows, blocks), device=DEVICE, generator=self.numbers) * 4 - 2))
            self.given["a_block_scale"] = self.scales_of_a
        if self.constants.get("PROMOTION") == 2:
            self.given["promotion"] = "never"
        if "DEQUANTIZES_ONCE" in self.constants:
            size = groups * -(-columns // 128) * -(-K // 256) * (2 * 16384 + 2 * 4) + 16
            self.given["workspace"] = torch.empty(size, device=DEVICE, dtype=torch.uint8)

    def launch(self, a, **own):
        given = {"a": a} | self.given | self.results | own
        if self.grouping == "dense":
            given |= {name: given[name][0] for name in ("b", "b_scale", "b_row_scale") if name in given}
        if self.grouping == "m_grouped_masked":
            groups, of_rows = len(own["rows"]), {"a", "a_block_scale", *self.results} & given.keys()
            given |= {name: given[name].unflatten(0, (groups, -1)) for name in of_rows}
        of_matrices(ZOO).launch(self.kernel.name, variant=self.variant, **given)

    def check(self, a, sampled):
        """sampled: (row of the result, row of a, group)."""
        columns = next(iter(self.results.values())).shape[1]
        first = (columns - 1) // 128 * 128
        for row, token, group in sampled:
            sums, powers = self.sums_of(a, token, group, columns, first)
            for name, right in self.made_of(sums, powers, first).items():
                got = self.results[name][row, -right.shape[1] :].cpu()
                got = got.view(torch.int16 if name == "d" else got.dtype if name == "scales" else torch.uint8).numpy()
                expected = right[0] if name == "scales" else right[0].view(np.int16 if name == "d" else np.uint8)
                np.testing.assert_array_equal(got, expected, f"{name}, row {row}")
                assert name == "scales" or len(np.unique(got)) > 4

    def sums_of(self, a, token, group, columns, first):
        """f32 sums of one row with what the last columns are made of, and the powers of two of those."""
        found = range(first, columns)
        b_rows = torch.tensor([*found, *(columns + c for c in found)] if self.gated else list(found), device=DEVICE)
        q, scales = (array[group, b_rows].cpu().numpy() for array in (self.q, self.scales))
        if self.form == "nvfp4":
            weights = (nvfp4_as_bf16 if self.tokens == "bf16" else nvfp4_as_e4m3)(q, scales)
            powers = np.full(len(weights), 8, np.float32)
        else:
            rebased = (mxfp4_as_bf16 if self.tokens == "bf16" else mxfp4_as_e4m3)(q, scales, scales.max(axis=1))
            weights, powers = rebased.weights, rebased.factors
        row = a[token].view(torch.int16 if self.tokens == "bf16" else torch.uint8).cpu().numpy()[None]
        splits = self.constants.get("SPLITS", 1)
        if self.tokens == "bf16":
            return gemm_bf16_by_four_bit(row.view(ml_dtypes.bfloat16), weights, splits), powers
        promotion = "never" if self.given.get("promotion") == "never" else "256"
        of_blocks = None if self.scales_of_a is None else self.scales_of_a[token].cpu().numpy()[None]
        plain = in_rows(permuted_columns(row.view(ml_dtypes.float8_e4m3fn)))  # the order of fragments undoes itself
        return gemm_fp8_by_four_bit(plain, weights, promotion, of_blocks, splits), powers

    def made_of(self, sums, powers, first):
        if not self.gated:
            return {"d": rounded(finished(sums, factors_of(powers)), "bf16")}
        h = h_of_sums(sums, powers, ORDER, Steps())
        if not self.quantised:
            return {"d": rounded(h, "bf16")}
        made = quantised_in_blocks(h, "exact", in_fragments=False)
        return {"q": made.q, "scales": made.scales}


@pytest.mark.parametrize("past", SHAPES)
@pytest.mark.parametrize(("name", "variant"), WAYS)
def test_rows_past_2_31_elements(name, variant, past):
    (M, columns, K), product = SHAPES[past], Product(name, variant)
    groups = 1 if product.grouping == "dense" else 4
    product.make_weights(groups, 2 * columns if product.gated else columns, K)
    product.make_results(M, columns)
    product.make_way(M, columns, K, groups)
    a, own = product.rows_of_a(M, K), {}
    middle, last = M // 2 + 1, M - 1
    sampled = [(0, 0, 0), (middle, middle, 2), (M - TAIL, M - TAIL, 3), (last, last, 3)]
    if product.grouping == "dense":
        sampled = [(row, token, 0) for row, token, _ in sampled]
    elif product.grouping == "m_grouped_masked":
        own["rows"] = torch.tensor([M // 4, 0, 1, M // 4], device=DEVICE, dtype=torch.int32)
        sampled = [(row, row, group) for row, group in ((0, 0), (M // 4 - 1, 0), (M // 2, 2), (M - TAIL, 3), (last, 3))]
    else:
        own["offsets"] = torch.tensor([5, 5, M - TAIL, M], device=DEVICE, dtype=torch.int32)
    if product.grouping == "m_grouped_gather":  # the first rows are the last of a
        own["index"] = torch.arange(M, device=DEVICE, dtype=torch.int32).flip(0)
        sampled = [(row, last - row, group) for row, _, group in sampled]
    product.launch(a, **own)
    product.check(a, sampled)
    if product.grouping == "m_grouped_masked":
        nobody = torch.cat([one[M // 2 + 1 : M // 4 * 3].view(torch.uint8).flatten()[-(2**20) :] for one in product.results.values()])
        assert bool((nobody == 0xFF).all())


OF_GROUPS = [
    kernel.name for tokens in ("fp8", "bf16") for form in NAN for kernel in ZOO.find(op="gemm", formats=f"{tokens}_{form}")
    if kernel.fields["grouping"] != "dense"
]  # fmt: skip


@pytest.mark.parametrize("name", OF_GROUPS)
def test_the_last_of_many_experts(name):
    """All others but the first are NaN; so is what lies between the stored scales of experts, those of the last past 2^32 bytes."""
    product = Product(name)
    columns = WEIGHTS // 2 if product.gated else WEIGHTS
    product.make_weights(2, WEIGHTS, WEIGHTS)
    experts, given = [0, EXPERTS - 1], product.given
    for what in ("b", "b_row_scale") if product.form == "mxfp4" else ("b",):
        two = given[what].view(torch.uint8)
        every = torch.full((EXPERTS, *two.shape[1:]), 0x7F, device=DEVICE, dtype=torch.uint8)
        every[experts] = two
        given[what] = every.view(given[what].dtype)
    if product.stored:
        _, rows, blocks = product.scales.shape
        memory = torch.full((EXPERTS * SCALES_APART,), NAN[product.form], device=DEVICE, dtype=torch.uint8)
        apart = memory.as_strided((EXPERTS, rows, blocks), (SCALES_APART, blocks, 1))
        for place, expert in enumerate(experts):
            apart[expert].copy_(product.scales[place])
        given["b_scale"] = product.as_scales(apart)
        assert SCALES_APART * (EXPERTS - 1) > 2**32
    assert given["b"].numel() > 2**32
    in_places = product.grouping == "m_grouped_masked"
    rows = 4 * EXPERTS if in_places else 2 * TAIL
    a = product.rows_of_a(rows, WEIGHTS)
    product.make_results(rows, columns)
    if in_places:
        own = {"rows": torch.tensor([4, *[0] * (EXPERTS - 2), 3], device=DEVICE, dtype=torch.int32)}
        sampled = [(3, 3, 0), (rows - 2, rows - 2, 1)]
    else:
        own = {"offsets": torch.tensor([TAIL] * (EXPERTS - 1) + [2 * TAIL], device=DEVICE, dtype=torch.int32)}
        sampled = [(TAIL - 1, TAIL - 1, 0), (TAIL, TAIL, 1), (rows - 1, rows - 1, 1)]
    if product.grouping == "m_grouped_gather":
        own["index"] = torch.arange(rows, device=DEVICE, dtype=torch.int32)
    product.launch(a, **own)
    product.check(a, sampled)
