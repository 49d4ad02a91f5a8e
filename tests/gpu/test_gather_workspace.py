"""Products of gathered rows that are moved through a workspace: two at once, and again in a graph after anything was written there.

What is expected is made without a workspace, by a variant that moves nothing. ZOO_CUBINS names another folder than the packaged one.
"""

import os

import pytest

from tools.lab.viewed import of_matrices
from zoo.catalog import Zoo
from zoo.packaged import packaged
from zoo.runtime import driver

pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch")
ZOO = of_matrices(Zoo(os.environ["ZOO_CUBINS"]) if "ZOO_CUBINS" in os.environ else packaged)
GATHER = "gemm.fp8b128.m_grouped_gather"
MOVING = {GATHER: "t128_w256_moved", f"{GATHER}.swiglu": "t128_moved", f"{GATHER}.swiglu_fp8b128": "t128_moved"}
ROUNDS = 30
MOVED = pytest.mark.parametrize("name", MOVING)


@pytest.fixture(autouse=True)
def hopper():
    if driver.device(0).capability[0] != 9:
        pytest.skip("rows are moved by Hopper's variants")


class Gather:
    """T rows, of which an index takes M for three groups, seven for the second. Here and there a row of zeros, the last five are nobody's."""

    def __init__(self, name, seed, T, M, N, K):
        self.name, self.numbers = name, torch.Generator("cuda").manual_seed(seed)
        blocks, columns = -(-K // 128), N if name == GATHER else N // 2
        self.inputs = {
            "a": self.normal(T, K),
            "a_scale": self.uniform(T, blocks),
            "b": self.normal(3, N, K),
            "b_scale": self.uniform(3, -(-N // 128), blocks) / K**0.5,
            "offsets": torch.tensor([M // 2, M // 2 + 7, M - 5], device="cuda", dtype=torch.int32),
        }
        self.inputs["index"] = torch.empty(M, device="cuda", dtype=torch.int32)
        self.take_others()
        units = -(-M // 16)
        self.workspace = torch.empty(-(-(M * K) // 128) * 128 + (16 * units * blocks + units + 4) * 4, device="cuda", dtype=torch.uint8)
        self.refill()
        if name.endswith("_fp8b128"):
            q = torch.empty(M, columns, device="cuda", dtype=torch.float8_e4m3fn)
            self.outputs = {"q": q, "scales": torch.empty(M, -(-columns // 128), device="cuda")}
        else:
            self.outputs = {"d": torch.empty(M, columns, device="cuda", dtype=torch.bfloat16)}

    def normal(self, *shape):
        return torch.randn(shape, generator=self.numbers, device="cuda").to(torch.float8_e4m3fn)

    def uniform(self, *shape):
        return torch.rand(shape, generator=self.numbers, device="cuda") + 0.5

    def take_others(self):
        self.inputs["index"].random_(-1, len(self.inputs["a"]), generator=self.numbers)

    def refill(self):
        self.workspace.random_(0, 256, generator=self.numbers)

    def moving(self):
        return {"variant": MOVING[self.name], "workspace": self.workspace, **self.inputs, **self.outputs}

    def bytes(self):
        return [one.view(torch.uint8) for one in self.outputs.values()]

    def poison(self):
        for one in self.bytes():
            one.fill_(0xA5)

    def expected(self):
        self.poison()
        ZOO.launch(self.name, variant="t128", **self.inputs, **self.outputs)
        result = [one.clone() for one in self.bytes()]
        assert all(len(torch.unique(one[:-5])) > 50 and bool((one[-5:] == 0xA5).all()) for one in result)
        return result

    def wrong(self, expected):
        """On the device."""
        return torch.stack([(one != other).any() for one, other in zip(self.bytes(), expected, strict=True)]).any()


SIZES = {  # T, M, N, K of either; their CTAs fit a GPU side by side, or those of each fill it
    "side by side": ((300, 500, 1280, 2064), (450, 470, 1536, 2064)),
    "one more than there is room for": ((1000, 2000, 2560, 1040), (3000, 1900, 2816, 1168)),
}
ALONE = (300, 1000, 1280, 1040)


@MOVED
@pytest.mark.parametrize("sizes", SIZES)
def test_two_at_once_with_a_workspace_each_give_the_bits_of_either_alone(name, sizes):
    pair = [Gather(name, seed, *size) for seed, size in enumerate(SIZES[sizes])]
    expected = [one.expected() for one in pair]
    ZOO.load(name)
    plans = [ZOO.prepare(one.name, **one.moving()) for one in pair]
    streams, wrong = [torch.cuda.Stream() for _ in pair], ([], [])
    torch.cuda.synchronize()
    torch.cuda._sleep(20_000_000)  # some 10 ms, in which both streams are given all they have to do
    for stream in streams:
        stream.wait_stream(torch.cuda.current_stream())
    for _ in range(ROUNDS):
        for one, plan, stream, right, found in zip(pair, plans, streams, expected, wrong, strict=True):
            with torch.cuda.stream(stream):
                one.poison()
                plan(stream)
                found.append(one.wrong(right))
    torch.cuda.synchronize()
    for found in wrong:
        differ = torch.stack(found).tolist()
        assert not any(differ), f"in rounds {[turn for turn, bad in enumerate(differ) if bad]}"


@MOVED
def test_two_graphs_at_once_with_a_workspace_each_give_the_bits_of_either_alone(name):
    """Many products one after the other, with nothing between them that the streams could wait for."""
    pair = [Gather(name, seed, *size) for seed, size in enumerate(SIZES["side by side"])]
    expected = [one.expected() for one in pair]
    graphs, streams = [captured(one, ROUNDS) for one in pair], [torch.cuda.Stream() for _ in pair]
    for one in pair:
        one.poison()
    torch.cuda.synchronize()
    for graph, stream in zip(graphs, streams, strict=True):
        with torch.cuda.stream(stream):
            graph.replay()
    torch.cuda.synchronize()
    assert not any(bool(one.wrong(right)) for one, right in zip(pair, expected, strict=True))


def captured(gather, times=1):
    ZOO.load(gather.name)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(times):
            ZOO.launch(gather.name, **gather.moving())
    return graph


@MOVED
def test_a_graph_gives_the_same_bits_whatever_its_workspace_holds(name):
    """0xFF, random bytes, and what the replay before left there, when its rows were others: marks of rows that are ready, but not these."""
    gather = Gather(name, 5, *ALONE)
    graph = captured(gather)
    for turn, fill in enumerate((None, 0xFF, "random", None, 0, "random", None, 0xFF, None)):
        gather.take_others()
        expected = gather.expected()
        if fill == "random":
            gather.refill()
        elif fill is not None:
            gather.workspace.fill_(fill)
        for again in range(3):
            gather.poison()
            graph.replay()
            assert not bool(gather.wrong(expected)), f"turn {turn}, the workspace filled with {fill}, replayed {again} times before"
