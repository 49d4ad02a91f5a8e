"""A row's bits where a kernel is batch invariant, always or if asked: the same whether it comes with no other row or with any number up to 300.

The first M rows of the same operands are multiplied for every M, by the variants that the rules choose, and all rows by all others that may.
Products of groups: also two groups of every size that share tiles' rows, by every variant. What must not be written is poison before
and after. ZOO_CUBINS names another folder than the packaged one.
"""

import contextlib
import os
from itertools import accumulate

import pytest

from tools.lab.viewed import of_matrices
from zoo.benchmark.arguments import describe_arguments, size_symbols
from zoo.benchmark.groups import Groups
from zoo.catalog import Zoo
from zoo.errors import VariantError
from zoo.packaged import packaged
from zoo.runtime import driver

pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch")
ZOO = Zoo(os.environ["ZOO_CUBINS"]) if "ZOO_CUBINS" in os.environ else packaged
DEVICE = "cuda"
MOST = 300
SHAPES = ((576, 1536), (1088, 4160), (2112, 1600))  # N, K: where the rules take different tiles, and split K if they may
SPLIT = SHAPES[1]
SMALL = (320, 1040)  # a short tile or block each way, also of a result with gates
SMALL_OF_FOUR_BITS = (320, 1088)  # whose K is whole blocks of 64
TOKENS = 211  # rows that an index takes them from
ASKED = {"batch_invariant": "yes"}


@pytest.fixture(autouse=True)
def hopper():
    if driver.device(0).capability[0] != 9:
        pytest.skip("these are the rules of Hopper's variants")


def kernels(*groupings):
    found = [kernel for grouping in groupings for kernel in ZOO.find("gemm.*", grouping=grouping) if "sm_90a" in kernel.archs]
    return [kernel for kernel in found if kernel.promises["batch_invariant"] or "batch_invariant" in kernel.options]


def moves(variant):
    return variant.constants.get("USES_WORKSPACE", 0) == 1


def results(kernel):
    """f32, which hides no bit, where D may be that; and bf16, where that is another variant or there is no f32."""
    if "d" not in kernel.arguments:
        return ["e4m3"]
    compiled = any("d" in variant.dtypes for variant in kernel.variants)
    found = [dtype for dtype in ("f32", "bf16") if dtype in kernel.arguments["d"].dtypes]
    return found if compiled else found[:1]


OF_GROUPS = [  # with a workspace: where a variant moves rows, none of which gives f32
    (kernel.name, dtype, moved)
    for kernel in kernels("m_grouped_contiguous", "m_grouped_gather", "m_grouped_masked")
    for moved in ((False, True) if any(moves(variant) for variant in kernel.variants) else (False,))
    for dtype in results(kernel)
    if kernel.fields["formats"] == "fp8b128" and not (moved and dtype == "f32")
]
OF_FOUR_BIT_GROUPS = [
    (kernel.name, dtype, False)
    for kernel in kernels("m_grouped_contiguous", "m_grouped_gather", "m_grouped_masked")
    for dtype in results(kernel)
    if kernel.fields["formats"].split("_")[-1] in ("nvfp4", "mxfp4")
]
WITHOUT_EXTRA = [kernel for kernel in kernels("dense", "m_grouped_contiguous") if "dense" in kernel.name or "extra" not in kernel.fields]
INVARIANT = list(dict.fromkeys([*((kernel.name, dtype, False) for kernel in WITHOUT_EXTRA for dtype in results(kernel)), *OF_GROUPS]))
ASKABLE = [(kernel.name, dtype) for kernel in kernels("dense") if "batch_invariant" in kernel.options for dtype in results(kernel)]
SCALED = {"a_block_scale": "f32"}  # rows with scales for 1 x 128
OF_SCALED = [
    (kernel.name, dtype)
    for kernel in kernels("dense", "m_grouped_contiguous", "m_grouped_gather", "m_grouped_masked")
    for dtype in results(kernel)
    if "a_block_scale" in kernel.arguments
]


class Rows:
    """A product of the first of MOST rows, random with outliers, with the same weights, of one group or more."""

    def __init__(self, name, dtype, N, K, asked, groups=1, moved=False):
        self.kernel = kernel = ZOO.kernel(name)
        self.numbers = torch.Generator(DEVICE).manual_seed(N * K)
        self.sizes = {"M": MOST, "R": MOST, "T": TOKENS, "N": N, "K": K, "CODES": K // 2, "I": N // 2, "G": groups}
        known = {*kernel.options, *kernel.arguments}
        self.asked = {option: value for option, value in (*asked.items(), ("gates", "interleaved")) if option in known}
        self.asked |= ({"d": dtype} if "d" in kernel.arguments else {}) | ({"workspace": "u8"} if moved else {})
        described, self.settings = self.described(MOST)
        self.of_rows = {one for one in described if kernel.arguments[one].forms[0].shape[0].text == "M"}
        self.written = [one for one, array in described.items() if array.written and one != "workspace"]
        self.arrays = {one: self.array(one, array.shape, array.dtype) for one, array in described.items()}
        if described["b"].dtype == "u8":
            self.pack(N, K)

    def described(self, M):
        sizes = self.sizes | {"M": M}
        return describe_arguments(self.kernel, {one: sizes[one] for one in size_symbols(self.kernel)}, self.asked, Groups(sizes["G"]))

    def array(self, name, shape, dtype):
        if dtype in ("f32", "bf16") and name != "a":
            return torch.exp2(torch.rand(shape, generator=self.numbers, device=DEVICE) * 6 - 3).to(getattr(torch, _TORCH[dtype]))
        if dtype in ("e4m3", "bf16") and name != "b_scale":
            values = torch.randn(shape, generator=self.numbers, device=DEVICE)
            outliers = torch.rand(shape, generator=self.numbers, device=DEVICE) < 0.01
            return torch.where(outliers, values * 50, values).clamp(-448, 448).to(getattr(torch, _TORCH[dtype]))
        if dtype == "i32":  # an index; offsets and rows come with each product
            return torch.randint(-1, TOKENS, shape, generator=self.numbers, device=DEVICE, dtype=torch.int32)
        # codes of four bits are any; scales lie around 1, those of blocks below those of rows
        least, most = {"e4m3": (0x30, 0x40), "ue8m0": (120, 121) if name == "b_row_scale" else (110, 121)}.get(dtype, (0, 256))
        codes = torch.randint(least, most, shape, generator=self.numbers, device=DEVICE, dtype=torch.int32).to(torch.uint8)
        return codes.view(getattr(torch, _TORCH[dtype])) if dtype in _TORCH else codes

    def pack(self, N, K):
        tokens, weights = self.kernel.fields["formats"].split("_")
        gates = self.asked.get("gates", "plain")
        places = self.arrays["b"].ndim - (gates != "plain") > (4 if tokens == "bf16" else 3)
        of_blocks = ("e4m3", 16) if weights == "nvfp4" else ("ue8m0", 32)
        operands = {"b": self.arrays["b"] if places else self.arrays["b"][None]}
        operands["q"] = self.array("q", (len(operands["b"]), N, K // 2), "e2m1x2")
        operands["scales"] = self.array("b_scale", (len(operands["b"]), N, K // of_blocks[1]), of_blocks[0])
        if "b_row_scale" in self.arrays:
            row_scale = self.arrays["b_row_scale"]
            operands["row_scale"] = row_scale if places else row_scale[None]
        of_matrices(packaged).launch(f"pack.{weights}.fragments", **operands, tokens=tokens, gates=gates)

    def multiplied(self, M, poison, variant=None, sizes=None):
        """The variant that took it, and all bytes of what it may write, those of rows that are not there too. `sizes`: of groups of M rows."""
        given = {name: array[:M] if name in self.of_rows else array for name, array in self.arrays.items()}
        if "workspace" in given:
            given["workspace"] = given["workspace"][: self.described(M)[0]["workspace"].shape[0]]
        for name in ("workspace", *self.written) if "workspace" in given else self.written:
            self.arrays[name].view(torch.uint8).fill_(poison)
        sizes = sizes or [M]
        if "offsets" in given:
            given["offsets"] = torch.tensor(list(accumulate(sizes)), dtype=torch.int32, device=DEVICE)
        if "rows" in given:
            given |= {"rows": torch.tensor(sizes, dtype=torch.int32, device=DEVICE), "expected_rows": max(sizes)}
        taken = launched(self.kernel.name, given | self.settings, variant)
        return taken, [self.arrays[name].view(torch.uint8) for name in self.written]

    def compared(self):
        """Where a row differs from what it is among MOST, or something else was written: the M, and the variants that no rule chose, which
        multiply all rows; and all variants that ran."""
        first, whole = self.multiplied(MOST, 0x5A)
        whole, ran, differ = [one.clone() for one in whole], {first.name: first}, {}
        self.refuse_dull()
        row = torch.arange(MOST, device=DEVICE)[:, None]

        def compare(M, poison, variant=None):
            taken, found = self.multiplied(M, poison, variant)
            wrong = [(one != torch.where(row < M, right, poison)).any() for one, right in zip(found, whole, strict=True)]
            differ[variant or M], ran[taken.name] = torch.stack(wrong).any(), taken

        for M in range(1, MOST):
            compare(M, (0x5A, 0xA5)[M % 2])
        for variant in self.kernel.variants:
            if variant.arch == "sm_90a" and variant.name not in ran:
                with contextlib.suppress(VariantError):  # it is for other dtypes or options
                    compare(MOST, 0xA5, variant.name)
        wrong = torch.stack(list(differ.values())).tolist()
        return [where for where, bad in zip(differ, wrong, strict=True) if bad], list(ran.values())

    def compared_in_groups(self):
        """The same for two groups by each variant: the first has M rows, the second half of what is left, nobody the rest."""
        masked = "rows" in self.arrays
        whole = [one.clone() for one in self.multiplied(MOST, 0x5A, sizes=[MOST, MOST if masked else 0])[1]]
        self.refuse_dull()
        if not masked:  # in one place, by the weights of one group and of the other
            whole = [torch.stack(pair) for pair in zip(whole, self.multiplied(MOST, 0x5A, sizes=[0, MOST])[1], strict=True)]
        assert not any(bool((one[0] == one[1]).all()) for one in whole), "the groups' weights are the same"
        differ, ran, row = {}, {}, torch.arange(MOST, device=DEVICE)[:, None]

        def expected(right, M, more, poison):
            if masked:
                return torch.stack([torch.where(row < size, one, poison) for size, one in zip((M, more), right, strict=True)])
            return torch.where(row < M, right[0], torch.where(row < M + more, right[1], poison))

        def compare(M, poison, variant):
            more = (MOST - M + 1) // 2
            taken, found = self.multiplied(MOST, poison, variant, [M, more])
            wrong = [(one != expected(right, M, more, poison)).any() for one, right in zip(found, whole, strict=True)]
            differ[variant, M], ran[variant] = torch.stack(wrong).any(), taken

        for variant in (one.name for one in self.kernel.variants if one.arch == "sm_90a"):
            with contextlib.suppress(VariantError):  # as above: before it has run once
                for M in range(1, MOST + 1):
                    compare(M, (0x5A, 0xA5)[M % 2], variant)
        wrong = torch.stack(list(differ.values())).tolist()
        return [where for where, bad in zip(differ, wrong, strict=True) if bad], list(ran.values())

    def refuse_dull(self):
        """Equal bits say nothing where all are NaN or zero."""
        for name in self.written:
            values = self.arrays[name].float()
            assert bool(values.isfinite().all()) and len(torch.unique(values)) > 100, name


_TORCH = {"e4m3": "float8_e4m3fn", "ue8m0": "float8_e8m0fnu", "bf16": "bfloat16", "f32": "float32"}


def launched(name, arguments, variant):
    """The variant."""
    plan = ZOO.prepare(name, variant=variant, **arguments)
    plan(torch.cuda.current_stream())
    return plan.launch.variant


def splits(variant):
    return variant.constants.get("SPLITS", 1)


@pytest.mark.parametrize(("name", "dtype", "moved"), INVARIANT)
def test_a_row_has_the_same_bits_among_any_number_of_rows(name, dtype, moved):
    ran = {}
    for N, K in SHAPES:
        differ, variants = Rows(name, dtype, N, K, ASKED, moved=moved).compared()
        assert not differ, f"N {N} K {K}: {differ[:10]}, of {', '.join(one.name for one in variants)}"
        ran |= {variant.name: variant for variant in variants}
    assert len(ran) > 1, "one variant for every M shows nothing of the others"
    assert {splits(variant) for variant in ran.values()} == {1}
    assert any(map(moves, ran.values())) == moved


@pytest.mark.parametrize(("name", "dtype", "moved"), [*OF_GROUPS, *OF_FOUR_BIT_GROUPS])
def test_a_row_has_the_same_bits_wherever_its_group_ends_and_the_next_begins(name, dtype, moved):
    small = SMALL if "fp8b128." in name else SMALL_OF_FOUR_BITS
    differ, variants = Rows(name, dtype, *small, {}, groups=2, moved=moved).compared_in_groups()
    assert not differ, f"{differ[:10]}, of {', '.join(one.name for one in variants)}"
    assert len(variants) > 1 and any(map(moves, variants)) == moved


@pytest.mark.parametrize(("name", "dtype"), OF_SCALED)
def test_a_row_under_scales_for_1_x_128_has_the_same_bits_among_others(name, dtype):
    """Some kernels have one variant for these: it must not matter where in a tile a row lies."""
    if "dense" in name:
        differ, variants = Rows(name, dtype, *SPLIT, ASKED | SCALED).compared()
    else:
        differ, variants = Rows(name, dtype, *SMALL_OF_FOUR_BITS, SCALED, groups=2).compared_in_groups()
    assert not differ, f"{differ[:10]}, of {', '.join(one.name for one in variants)}"
    assert {variant.constants["PROMOTION"] for variant in variants} == {1}


@pytest.mark.parametrize(("name", "dtype"), ASKABLE)
def test_if_nobody_asks_k_is_split(name, dtype):
    """Else the test above could not fail. Bits need not differ everywhere: sums may be exact, or rounding hide their order."""
    differ, variants = Rows(name, dtype, *SPLIT, {}).compared()
    assert max(map(splits, variants)) > 1
    if name == "gemm.fp8b128.dense":
        assert any(isinstance(where, int) for where in differ), "the rules split K for few rows, and no bit says so"
