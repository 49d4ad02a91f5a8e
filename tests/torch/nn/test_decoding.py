"""Whole decoders of zoo's layers, at tiny sizes by the written rule: tests/gpu/test_decoding.py has the sizes of real models."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from tests.torch.nn.decoder import DEEPSEEK, GPT_OSS, Decoder, check, tiny  # noqa: E402

SEQUENCES, STEPS = 3, 3


@pytest.mark.parametrize("shape", [tiny(GPT_OSS), tiny(DEEPSEEK)], ids=lambda one: one.name)
def test_logits_of_every_decoded_token_are_off_by_roundings_and_by_no_mistake(shape):
    model = Decoder(shape, SEQUENCES, STEPS + 2, "cpu")
    tokens, chosen, logits = [torch.arange(SEQUENCES)], [], []
    for _ in range(STEPS):
        logits.append(model(tokens[-1]))
        chosen.append(model.chosen.clone())
        tokens.append(logits[-1].argmax(1))
    error, bound = check(model, torch.stack(tokens[:-1]), torch.stack(chosen), torch.stack(logits))
    print(f"{shape.name}: {error:.4f} of {bound:.4f}")
    assert 0.4 * bound < error <= bound
