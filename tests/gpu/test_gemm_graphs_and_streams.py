"""Hopper's GEMMs in a graph that is replayed on other numbers, and on two streams at once: for each way of cutting work, the bits of a plain launch.

Rows that are moved through a workspace: test_gather_workspace.py. ZOO_CUBINS names another folder than the packaged one.
"""

import os
from dataclasses import dataclass, field

import pytest

from tools.lab.viewed import of_matrices
from zoo.benchmark.arguments import describe_arguments, size_symbols
from zoo.benchmark.groups import Groups
from zoo.catalog import Zoo
from zoo.packaged import packaged
from zoo.runtime import driver

pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch")
ZOO = Zoo(os.environ["ZOO_CUBINS"]) if "ZOO_CUBINS" in os.environ else packaged
DEVICE = "cuda"
GROUPS, TOKENS, ROUNDS, POISON = 4, 300, 50, 0xA5
MANY = (1400, 3584, 1040)  # more tiles than an H200 has multiprocessors, by any variant; the second product mostly has fewer
REST = (190, 2560, 3088)  # 20 tiles of 192 x 128, which four CTAs share
SPLIT = (13, 1280, 2064)
_BYTES = {"u8": torch.uint8, "e2m1x2": torch.uint8}
_TORCH = {"e4m3": torch.float8_e4m3fn, "bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32, "i32": torch.int32} | _BYTES


@dataclass(frozen=True)
class Way:
    name: str
    constants: dict[str, int]  # what sets the variant apart; 0: that it has not
    sizes: tuple[int, int, int] = MANY  # M, N, K
    settings: dict[str, str] = field(default_factory=dict)  # options, dtypes, and optional arguments by theirs
    together: int = 0  # CTAs of a cluster of the first product, where the sizes decide

    def variant(self):
        d = self.settings.get("d", "bf16")
        return next(
            variant
            for variant in ZOO.kernel(self.name).variants
            if variant.arch == "sm_90a"
            and variant.dtypes.get("d", d) == d
            and all(variant.constants.get(constant, 0) == value for constant, value in self.constants.items())
        )


DENSE, GROUPED, GATHER, ALONG_K = (f"gemm.fp8b128.{one}" for one in ("dense", "m_grouped_contiguous", "m_grouped_gather", "k_grouped"))
FOUR_BIT, SWIGLU, QUANTISED = "gemm.fp8_nvfp4.dense", ".swiglu", ".swiglu_fp8b128"
GROUPS_OF_FOUR_BITS = {
    f"{tokens} {grouping}": f"gemm.{tokens}_nvfp4.m_grouped_{grouping}"
    for tokens in ("fp8", "bf16")
    for grouping in ("contiguous", "masked", "gather")
}
FEW = {"SWAPPED": 1, "SPLITS": 1, "SHARERS": 0}
IF_ASKED, NEVER = {"PROMOTION": 3}, {"promotion": "never"}
OF_SCALES, SCALES = {"PROMOTION": 1}, {"a_block_scale": "f32"}
MANY_OF_FOUR_BITS = (1400, 3584, 1088)
WAYS = {
    "many tokens": Way(DENSE, {"SWAPPED": 0, "SPLITS_LAST_WAVE": 0, "TOKENS": 192}),
    "a tile ahead": Way(DENSE, {"TOKENS": 256}),
    "a rest that clusters share": Way(DENSE, {"SPLITS_LAST_WAVE": 1, "TOKENS": 192, "WEIGHTS": 128}, REST),
    "few tokens": Way(DENSE, FEW | {"TOKENS": 16}, SPLIT),
    "few tokens, K split": Way(DENSE, FEW | {"SPLITS": 8, "TOKENS": 16}, SPLIT),
    "few tokens, shared": Way(DENSE, FEW | {"SHARERS": 4, "TOKENS": 64}, (50, *SPLIT[1:])),
    "few tokens in turn": Way(DENSE, FEW | {"TOKENS": 8, "STAGES": 7}, (8, 40960, 528)),
    "groups": Way(GROUPED, {"SWAPPED": 0, "INDEXED": 0, "TOKENS": 128}),
    "groups, a tile ahead": Way(GROUPED, {"INDEXED": 0, "TOKENS": 256}),
    "groups, few tokens": Way(GROUPED, {"SWAPPED": 1}, (100, *MANY[1:])),
    "a group for each row": Way(GROUPED, {"INDEXED": 1, "TOKENS": 128}, settings={"m_indices": "i32"}),
    "groups in places": Way("gemm.fp8b128.m_grouped_masked", {"SWAPPED": 0, "TOKENS": 128}),
    "groups along K, added to f32": Way(ALONG_K, {"TOKENS": 256}, (700, 1792, 2064), {"d": "f32", "accumulate": "yes"}),
    "groups along K, added to bf16": Way(ALONG_K, {"TOKENS": 256}, (700, 1792, 2064), {"d": "bf16", "accumulate": "yes"}),
    "gathered": Way(GATHER, {"SWAPPED": 0, "USES_WORKSPACE": 0, "TOKENS": 128}),
    "gathered, few tokens": Way(GATHER, {"SWAPPED": 1}, (100, *MANY[1:])),
    "gathered, SwiGLU": Way(GATHER + SWIGLU, {"SWAPPED": 0, "USES_WORKSPACE": 0, "TOKENS": 128}),
    "SwiGLU": Way(DENSE + SWIGLU, {"SWAPPED": 0, "TOKENS": 128}),
    "SwiGLU, K split": Way(DENSE + SWIGLU, {"SPLITS": 2, "TOKENS": 16}, SPLIT),
    "SwiGLU in e4m3, pairs": Way(DENSE + QUANTISED, {"SWAPPED": 0, "PARTS": 2}),
    "SwiGLU in e4m3, K split": Way(DENSE + QUANTISED, {"SWAPPED": 1, "SPLITS": 2, "PARTS": 2, "TOKENS": 16}, SPLIT),
    "SwiGLU of groups": Way(GROUPED + SWIGLU, {"SWAPPED": 0, "GROUPING": 1, "TOKENS": 128}),
    "SwiGLU of groups in e4m3, pairs": Way(GROUPED + QUANTISED, {"SWAPPED": 0, "PARTS": 2}),
    "SwiGLU of groups in e4m3, few tokens": Way(GROUPED + QUANTISED, {"SWAPPED": 1}, (100, *MANY[1:])),
    "four bits": Way(FOUR_BIT, IF_ASKED | {"SPLITS": 1, "TOKENS": 64}, (50, 1280, 2048)),
    "four bits, never promoted": Way(FOUR_BIT, IF_ASKED | {"SPLITS": 1, "TOKENS": 64}, (50, 1280, 2048), NEVER),
    "four bits, K split": Way(FOUR_BIT, IF_ASKED | {"SPLITS": 4, "TOKENS": 8}, (8, 1280, 2048)),
    "four bits, K split, never promoted": Way(FOUR_BIT, IF_ASKED | {"SPLITS": 4, "TOKENS": 8}, (8, 1280, 2048), NEVER),
    "four bits, decoded once": Way(FOUR_BIT, {"PROMOTION": 0, "DEQUANTIZES_ONCE": 1}, (1400, 3584, 2048), {"workspace": "u8"}),
    "four bits, groups decoded once": Way(
        GROUPS_OF_FOUR_BITS["fp8 contiguous"], {"PROMOTION": 0, "DEQUANTIZES_ONCE": 1}, MANY_OF_FOUR_BITS, {"workspace": "u8"}
    ),
    "four bits, stored": Way(f"{FOUR_BIT}.stored", {"TOKENS": 64}, (50, 1280, 2048)),
    "four bits, stored, K split": Way(f"{FOUR_BIT}.stored", {"SPLITS": 4, "TOKENS": 8}, (8, 1280, 2048)),
    "four bits, SwiGLU in e4m3": Way(FOUR_BIT + QUANTISED, {"TOKENS": 64}, (50, 1280, 2048)),
    **{
        f"four bits, {said}{result}{lying}": Way(
            f"{name}{result}{lying}", {"PROMOTION": 3 if said[:3] == "fp8" and not result + lying else 0, "TOKENS": 128}, MANY_OF_FOUR_BITS
        )
        for said, name in GROUPS_OF_FOUR_BITS.items()
        for result, lying in (("", ""), ("", ".stored"), (SWIGLU, ""), (QUANTISED, "_stored"))
    },
    "four bits, few gathered": Way(GROUPS_OF_FOUR_BITS["fp8 gather"], IF_ASKED | {"TOKENS": 8}, (100, *MANY_OF_FOUR_BITS[1:])),
    "four bits, few gathered, never promoted": Way(
        GROUPS_OF_FOUR_BITS["fp8 gather"], IF_ASKED | {"TOKENS": 8}, (100, *MANY_OF_FOUR_BITS[1:]), NEVER
    ),
    **{
        f"four bits, {said}{ending}, scales for 1 x 128": Way(
            f"{name}{ending}", OF_SCALES | {"TOKENS": 32 if ending else 128}, MANY_OF_FOUR_BITS, SCALES
        )
        for said, name in ({"one matrix": FOUR_BIT} | GROUPS_OF_FOUR_BITS).items()
        for ending in ("", ".stored", SWIGLU, QUANTISED, f"{SWIGLU}_stored", f"{QUANTISED}_stored")
        if not said.startswith("bf16")
    },
    **{
        f"four bits, {said}{QUANTISED}, pairs{under}": Way(
            f"{name}{QUANTISED}", {"IN_CLUSTER": 1, "PROMOTION": 0} | constants, (100, *MANY_OF_FOUR_BITS[1:]), settings
        )
        for said, name in ({"one matrix": FOUR_BIT} | GROUPS_OF_FOUR_BITS).items()
        for under, constants, settings in (("", {}, {}), (", scales for 1 x 128", OF_SCALES, SCALES))
        if not (under and said.startswith("bf16"))
    },
    **{
        f"four bits, {said}{QUANTISED}, {tile}": Way(f"{name}{QUANTISED}", constants, MANY_OF_FOUR_BITS, settings)
        for said, name in ({"one matrix": FOUR_BIT} | GROUPS_OF_FOUR_BITS).items()
        for tile, constants, settings in (
            ("wide pairs", {"IN_CLUSTER": 1, "TOKENS": 32}, {}),
            ("64 rows, scales for 1 x 128", OF_SCALES | {"TOKENS": 64}, SCALES),
        )
        if not said.startswith("bf16")
    },
    **{
        f"four bits, {said}{ending}_stored, {tokens} tokens": Way(
            f"{name}{ending}_stored", {"IN_CLUSTER": 1, "TOKENS": tokens}, (100, *MANY_OF_FOUR_BITS[1:])
        )
        for said, name in ({"one matrix": FOUR_BIT} | GROUPS_OF_FOUR_BITS).items()
        for ending in (SWIGLU, QUANTISED)
        for tokens in (8, 32)
        if tokens == 8 or said.startswith("bf16")
    },
    **{
        f"four bits, {said}{QUANTISED}{lying}, {tokens} tokens{under}, {how}": Way(
            f"{name}{QUANTISED}{lying}", {"IN_CLUSTER_OR_SEQUENCE": 1, "TOKENS": tokens} | constants, sizes, settings, together
        )
        for said, name in ({"one matrix": FOUR_BIT, "bf16 one matrix": "gemm.bf16_nvfp4.dense"} | GROUPS_OF_FOUR_BITS).items()
        for lying, tokens, under, constants, settings in (
            (("", 32, "", {}, {}), ("", 64, "", {}, {}))
            if said.startswith("bf16")
            else (("_stored", 32, "", {"PROMOTION": 0}, {}), ("_stored", 32, ", scales for 1 x 128", OF_SCALES, SCALES))
        )
        for how, together, sizes in (("in pairs", 2, (100, 512, 1088)), ("in turn", 1, (2000, 14336, 1088)))
    },
    "four bits, few gathered, scales for 1 x 128": Way(
        GROUPS_OF_FOUR_BITS["fp8 gather"], OF_SCALES | {"TOKENS": 8}, (100, *MANY_OF_FOUR_BITS[1:]), SCALES
    ),
    "four bits, few stored, scales for 1 x 128": Way(
        GROUPS_OF_FOUR_BITS["fp8 contiguous"] + ".stored", OF_SCALES | {"TOKENS": 8}, (100, *MANY_OF_FOUR_BITS[1:]), SCALES
    ),
    "four bits, many stored, scales for 1 x 128": Way(
        GROUPS_OF_FOUR_BITS["fp8 contiguous"] + ".stored", OF_SCALES | {"TOKENS": 96}, MANY_OF_FOUR_BITS, SCALES
    ),
    "four bits, a bias, f16": Way(
        GROUPS_OF_FOUR_BITS["fp8 contiguous"],
        IF_ASKED | {"TOKENS": 128},
        MANY_OF_FOUR_BITS,
        {"d": "f16", "bias": "f32", "row_scale": "f32"},
    ),
}
EACH_WAY = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)


@pytest.fixture(autouse=True)
def hopper():
    if driver.device(0).capability[0] != 9:
        pytest.skip("these are the ways of Hopper's variants")
    yield
    torch.cuda.empty_cache()


class Product:
    def __init__(self, way, seed, M, N, K):
        self.numbers = torch.Generator(DEVICE).manual_seed(seed)
        self.name, self.variant, kernel = way.name, way.variant().name, ZOO.kernel(way.name)
        chosen = way.settings | {option: "interleaved" for option in kernel.options if option == "gates"}
        sizes = {"M": M, "R": M // 2, "T": TOKENS, "N": N, "K": K, "CODES": K // 2, "I": N // 2, "G": GROUPS}
        sizes = {one: sizes[one] for one in size_symbols(kernel)}
        arrays, self.settings = describe_arguments(kernel, sizes, chosen, Groups(GROUPS))
        empty = {name: torch.empty_strided(one.shape, one.strides, device=DEVICE, dtype=_TORCH[one.dtype]) for name, one in arrays.items()}
        written = [name for name, array in arrays.items() if array.written and name != "workspace"]
        self.inputs = {name: array for name, array in empty.items() if name not in written}
        self.before = {name: empty[name] for name in written}
        for array in self.before.values():
            array.view(torch.uint8).fill_(POISON)
        self.added, self.M, self.K = self.settings.get("accumulate") == "yes", M, K
        self.tokens = kernel.fields["formats"].split("_")[0]
        self.packed = (N, K) if kernel.fields["formats"].endswith("_nvfp4") and "b_scale" not in self.inputs else None
        self.draw()

    def draw(self):
        """Other numbers, in the same places."""
        for name, array in self.inputs.items():
            values = self.drawn(name, array)
            (array if values.dtype != torch.uint8 else array.view(torch.uint8)).copy_(values)
        if self.added:
            self.before["d"].normal_(generator=self.numbers)
        if self.packed:
            (N, K), b = self.packed, self.inputs["b"]
            gates = self.settings.get("gates", "plain")
            b = b if b.ndim - (gates != "plain") > (4 if self.tokens == "bf16" else 3) else b[None]  # of groups, or of one
            scales = self.integers((len(b), N, K // 16), 0x30, 0x40).to(torch.uint8).view(torch.float8_e4m3fn)
            q = self.integers((len(b), N, K // 2), 0, 256).to(torch.uint8)
            of_matrices(packaged).launch("pack.nvfp4.fragments", q=q, b=b, scales=scales, tokens=self.tokens, gates=gates)

    def drawn(self, name, array):
        shape = array.shape
        if name == "offsets":
            return self.ends(self.K, 16) if self.name == ALONG_K else self.ends(self.M, 1)
        if name == "m_indices":
            group = torch.searchsorted(self.ends(self.M, 1), torch.arange(self.M, device=DEVICE), right=True)
            return torch.where(group < GROUPS, group, -1)
        if name in ("rows", "index"):
            return self.integers(shape, 0, self.M // 2 + 1) if name == "rows" else self.integers(shape, -1, TOKENS)
        if name.endswith("_scale") and array.dtype != torch.float32:
            return self.integers(shape, 0x30, 0x40).to(torch.uint8)
        if array.dtype == torch.uint8:
            return self.integers(shape, 0, 256).to(torch.uint8)
        if name.endswith("_scale"):
            return torch.rand(shape, generator=self.numbers, device=DEVICE) + 0.5
        return torch.randn(shape, generator=self.numbers, device=DEVICE)

    def integers(self, shape, least, end):
        return torch.randint(least, end, shape, generator=self.numbers, device=DEVICE)

    def ends(self, whole, step):
        """What lies behind the last is nobody's."""
        return self.integers((GROUPS,), 0, whole // step + 1).sort().values * step

    def outputs(self):
        return {name: array.clone() for name, array in self.before.items()}

    def plan(self, outputs):
        return ZOO.prepare(self.name, variant=self.variant, **self.inputs, **self.settings, **outputs)

    def alone(self):
        outputs = self.outputs()
        self.plan(outputs)(torch.cuda.current_stream())
        torch.cuda.synchronize()
        for name, array in outputs.items():
            written = array.view(torch.uint8) != self.before[name].view(torch.uint8)
            assert bool(array.float().isfinite().all()) and len(torch.unique(array.view(torch.uint8)[written])) > 50, name
        return outputs


def pair_of(way):
    """Of different sizes; along K rows of scales start at multiples of 16 bytes."""
    M, N, K = way.sizes
    return Product(way, 1, M, N, K), Product(way, 2, -(-M // 12) * 4, N + 256, K + 512)


def same(outputs, others):
    return all(torch.equal(outputs[name].view(torch.uint8), others[name].view(torch.uint8)) for name in outputs)


@EACH_WAY
def test_a_graph_gives_the_bits_of_plain_launches_whatever_is_drawn(way):
    """Two products, of which the second may begin before the first has ended."""
    pair = pair_of(way)
    outputs = [one.outputs() for one in pair]
    plans = [one.plan(into) for one, into in zip(pair, outputs, strict=True)]
    if way.constants.get("SPLITS_LAST_WAVE"):
        assert all(plan.launch.cluster[0] > 1 for plan in plans), "there is no rest to share"
    if way.together:
        assert plans[0].launch.cluster[0] == way.together
    graph, last = torch.cuda.CUDAGraph(), outputs
    with torch.cuda.graph(graph):
        for plan in plans:
            plan(torch.cuda.current_stream())
    for turn in range(3):
        for one, into in zip(pair, outputs, strict=True):
            one.draw()
            for name, array in into.items():
                array.copy_(one.before[name])
        expected = [one.alone() for one in pair]
        assert not any(map(same, expected, last)), "the numbers are not others"
        graph.replay()
        torch.cuda.synchronize()
        assert [same(*two) for two in zip(outputs, expected, strict=True)] == [True, True], f"turn {turn}"
        last = expected


@EACH_WAY
def test_two_streams_at_once_give_the_bits_of_either_alone(way):
    """Many products on each, with nothing between them that the streams could wait for."""
    pair = pair_of(way)
    expected = [one.alone() for one in pair]
    outputs = [[one.outputs() for _ in range(ROUNDS)] for one in pair]
    plans = [[one.plan(into) for into in own] for one, own in zip(pair, outputs, strict=True)]
    streams = [torch.cuda.Stream() for _ in pair]
    torch.cuda.synchronize()
    torch.cuda._sleep(20_000_000)  # some 10 ms, in which both streams are given all they have to do
    for stream in streams:
        stream.wait_stream(torch.cuda.current_stream())
    for both in zip(*plans, strict=True):
        for plan, stream in zip(both, streams, strict=True):
            plan(stream)
    torch.cuda.synchronize()
    wrong = [[turn for turn, into in enumerate(own) if not same(into, right)] for own, right in zip(outputs, expected, strict=True)]
    assert wrong == [[], []], "these rounds of either"
