"""A row's bits where a kernel is batch invariant, always or if asked: the same whether it comes with no other row or with any number up to 300.

The first M rows of the same operands are multiplied for every M, by the variants that the rules choose, and all rows by all others that may.
What must not be written is poison before and after. ZOO_CUBINS names another folder than the packaged one.
"""

import contextlib
import os

import pytest

from zoo.benchmark.arguments import describe_arguments, size_symbols
from zoo.benchmark.groups import Groups
from zoo.catalog import Zoo
from zoo.errors import VariantError
from zoo.runtime import driver
from zoo.shipped.packaged import packaged

pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch")
ZOO = Zoo(os.environ["ZOO_CUBINS"]) if "ZOO_CUBINS" in os.environ else packaged
DEVICE = "cuda"
MOST = 300
SHAPES = ((576, 1536), (1088, 4160), (2112, 1600))  # N, K: where the rules take different tiles, and split K if they may
SPLIT = SHAPES[1]
ASKED = {"batch_invariant": "yes"}


@pytest.fixture(autouse=True)
def hopper():
    if driver.device(0).capability[0] != 9:
        pytest.skip("these are the rules of Hopper's variants")


def kernels(*groupings):
    found = [kernel for grouping in groupings for kernel in ZOO.find("gemm.*", grouping=grouping) if "sm_90a" in kernel.archs]
    return [kernel for kernel in found if kernel.promises["batch_invariant"] or "batch_invariant" in kernel.options]


def results(kernel):
    """f32, which hides no bit, where D may be that; and bf16, where that is another variant or there is no f32."""
    if "d" not in kernel.arguments:
        return ["e4m3"]
    compiled = any("d" in variant.dtypes for variant in kernel.variants)
    found = [dtype for dtype in ("f32", "bf16") if dtype in kernel.arguments["d"].dtypes]
    return found if compiled else found[:1]


INVARIANT = [
    (kernel.name, dtype)
    for kernel in (*kernels("dense"), *(one for one in kernels("m_grouped_contiguous") if "extra" not in one.fields))
    for dtype in results(kernel)
]
ASKABLE = [(kernel.name, dtype) for kernel in kernels("dense") if "batch_invariant" in kernel.options for dtype in results(kernel)]


class Rows:
    """A product of the first of MOST rows, random with outliers, with the same weights."""

    def __init__(self, name, dtype, N, K, asked):
        self.kernel = kernel = ZOO.kernel(name)
        self.numbers = torch.Generator(DEVICE).manual_seed(N * K)
        sizes = {"M": MOST, "N": N, "K": K, "I": N // 2, "Q": N // 2, "G": 1}
        settings = {option: value for option, value in (*asked.items(), ("gates", "interleaved")) if option in kernel.options}
        settings |= {"d": dtype} if "d" in kernel.arguments else {}
        described, self.settings = describe_arguments(kernel, {one: sizes[one] for one in size_symbols(kernel)}, settings, Groups(1))
        self.of_rows = {one for one in described if kernel.arguments[one].forms[0].shape[0].text == "M"}
        self.written = [one for one, array in described.items() if array.written]
        self.arrays = {one: self.array(one, array.shape, array.dtype) for one, array in described.items()}
        if described["b"].dtype == "u8":
            self.pack(N, K)

    def array(self, name, shape, dtype):
        if dtype in ("f32", "bf16") and name != "a":
            return torch.exp2(torch.rand(shape, generator=self.numbers, device=DEVICE) * 6 - 3).to(getattr(torch, _TORCH[dtype]))
        if dtype in ("e4m3", "bf16") and name != "b_scale":
            values = torch.randn(shape, generator=self.numbers, device=DEVICE)
            outliers = torch.rand(shape, generator=self.numbers, device=DEVICE) < 0.01
            return torch.where(outliers, values * 50, values).clamp(-448, 448).to(getattr(torch, _TORCH[dtype]))
        if dtype == "i32":
            return torch.ones(shape, dtype=torch.int32, device=DEVICE)
        # codes of four bits are any; scales lie around 1, those of blocks below those of rows
        least, most = {"e4m3": (0x30, 0x40), "ue8m0": (120, 121) if name == "b_row_scale" else (110, 121)}.get(dtype, (0, 256))
        codes = torch.randint(least, most, shape, generator=self.numbers, device=DEVICE, dtype=torch.int32).to(torch.uint8)
        return codes.view(getattr(torch, _TORCH[dtype])) if dtype in _TORCH else codes

    def pack(self, N, K):
        weights = self.kernel.fields["formats"].split("_")[1]
        places = self.arrays["b"].ndim == 4
        of_blocks = ("e4m3", 16) if weights == "nvfp4" else ("ue8m0", 32)
        operands = {"q": self.array("q", (1, N, K // 2), "e2m1x2"), "b": self.arrays["b"] if places else self.arrays["b"][None]}
        operands["scales"] = self.array("b_scale", (1, N, K // of_blocks[1]), of_blocks[0])
        if "b_row_scale" in self.arrays:
            row_scale = self.arrays["b_row_scale"]
            operands["row_scale"] = row_scale if places else row_scale[None]
        packaged.launch(f"pack.{weights}.fragments", **operands)

    def multiplied(self, M, poison, variant=None):
        """The variant that took it, and all bytes of what it may write, those of rows that are not there too."""
        for name in self.written:
            self.arrays[name].view(torch.uint8).fill_(poison)
        given = {name: array[:M] if name in self.of_rows else array for name, array in self.arrays.items()}
        if "offsets" in given:
            given["offsets"] = given["offsets"] * M
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


@pytest.mark.parametrize(("name", "dtype"), INVARIANT)
def test_a_row_has_the_same_bits_among_any_number_of_rows(name, dtype):
    ran = {}
    for N, K in SHAPES:
        differ, variants = Rows(name, dtype, N, K, ASKED).compared()
        assert not differ, f"N {N} K {K}: {differ[:10]}, of {', '.join(one.name for one in variants)}"
        ran |= {variant.name: variant for variant in variants}
    assert len(ran) > 1, "one variant for every M shows nothing of the others"
    assert {splits(variant) for variant in ran.values()} == {1}


@pytest.mark.parametrize(("name", "dtype"), ASKABLE)
def test_if_nobody_asks_k_is_split(name, dtype):
    """Else the test above could not fail. Bits need not differ everywhere: sums may be exact, or rounding hide their order."""
    differ, variants = Rows(name, dtype, *SPLIT, {}).compared()
    assert max(map(splits, variants)) > 1
    if name == "gemm.fp8b128.dense":
        assert any(isinstance(where, int) for where in differ), "the rules split K for few rows, and no bit says so"
