"""Decoders with layers of real sizes, replayed as one CUDA graph: logits are off from float32 by the roundings alone, and the graph's are the
bits that single launches give."""

from __future__ import annotations

import time

import pytest

torch = pytest.importorskip("torch")

from tests.torch.nn.decoder import DEEPSEEK, GPT_OSS, Decoder, check  # noqa: E402
from zoo.torch.nn.formats import on_gpu  # noqa: E402

pytestmark = pytest.mark.gpu
SEQUENCES, STEPS, TIMED = 8, 6, 20


@pytest.mark.parametrize("shape", [GPT_OSS, DEEPSEEK], ids=lambda one: one.name)
def test_a_replayed_decoder_is_off_by_roundings_and_by_no_mistake(shape):
    if shape.format not in on_gpu(torch.cuda.get_device_capability()):
        pytest.skip(f"no product in {shape.format} on {torch.cuda.get_device_name()}")
    torch.cuda.empty_cache()
    model = Decoder(shape, SEQUENCES, 2 * (STEPS + TIMED), "cuda")
    tokens = torch.arange(SEQUENCES, device="cuda")

    def step():
        logits = model(tokens)
        tokens.copy_(logits.argmax(1))
        return logits

    def begin():
        model.position.zero_()
        model.cache.zero_()
        tokens.copy_(torch.arange(SEQUENCES))

    launched = [step().clone() for _ in range(STEPS)]
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        logits = step()
    begin()
    found, given, chosen = [], [], []
    for _ in range(STEPS):
        given.append(tokens.clone())
        graph.replay()
        found.append(logits.clone())
        chosen.append(model.chosen.clone())
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(TIMED):
        graph.replay()
    torch.cuda.synchronize()
    microseconds = (time.perf_counter() - began) / TIMED * 1e6
    error, bound = check(model, torch.stack(given), torch.stack(chosen), torch.stack(found))
    print(f"{shape.name}: {shape.layers} layers, {SEQUENCES} sequences, {microseconds:.0f} us a token; error {error:.4f} of {bound:.4f}")
    assert torch.equal(torch.stack(found), torch.stack(launched))
    assert 0.4 * bound < error <= bound
