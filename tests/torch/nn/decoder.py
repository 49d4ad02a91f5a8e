"""Decoders of zoo's layers, and the same decoders in float32 with the layers' dequantised weights: what do roundings alone change in the logits?

The served model rounds what each product reads and writes. The float32 model rounds nothing. Given `noise`, it multiplies each number at
the same places by 1 + error x a normal number: the root mean square of what that changes in the logits is what roundings explain. Experts
are those that the served model chose, since a router near a tie may choose others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.nn import functional

import zoo.torch
from tests.torch.nn.expert_layers import BF16, MARGIN
from zoo.torch.nn.formats import FORMATS

DRAWS = 3  # of noise


@dataclass(frozen=True)
class Shape:
    """One layer as the published model has it. Attention is plain: heads of q share heads of k and v, without positions."""

    name: str
    format: str
    hidden: int
    heads: int
    kv_heads: int
    head: int
    experts: int
    top_k: int
    intermediate: int
    bias: bool
    options: tuple[tuple[str, Any], ...] = ()  # of zoo.torch.nn.Experts
    shared: bool = False
    layers: int = 3
    vocabulary: int = 512


_GPT_OSS = (("activation", "gpt_oss"), ("limit", 7.0), ("gates", "interleaved"))
GPT_OSS = Shape("gpt-oss", "fp8_mxfp4", 2880, 64, 8, 64, 32, 4, 2880, bias=True, options=_GPT_OSS)
DEEPSEEK = Shape("DeepSeek", "fp8b128", 7168, 56, 8, 128, 256, 8, 2048, bias=False, shared=True, layers=2)


def tiny(shape: Shape) -> Shape:
    return replace(shape, hidden=128, heads=4, kv_heads=2, head=32, experts=6, top_k=2, intermediate=128, layers=2, vocabulary=64)


class Decoder(torch.nn.Module):
    """Decodes one token of each sequence in a call. `cache` holds k and v of all positions."""

    def __init__(self, shape: Shape, sequences: int, positions: int, device: str):
        super().__init__()
        self.shape, self.position = shape, torch.zeros(1, dtype=torch.int64, device=device)
        generator = torch.Generator(device).manual_seed(0)

        def normal(*sizes: int, over: float = 1.0) -> torch.Tensor:
            return torch.empty(sizes, device=device, dtype=torch.bfloat16).normal_(0, over**-0.5, generator=generator)

        self.embedding, self.logits = normal(shape.vocabulary, shape.hidden), normal(shape.vocabulary, shape.hidden, over=shape.hidden)
        self.layers = [_layer(shape, normal) for _ in range(shape.layers)]
        sizes = (shape.layers, 2, sequences, positions, shape.kv_heads, shape.head)
        self.cache = torch.zeros(sizes, device=device, dtype=torch.bfloat16)
        self.chosen = torch.zeros(shape.layers, sequences, shape.top_k, device=device, dtype=torch.int64)

    @torch.no_grad()
    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Logits (sequences, vocabulary) in float32. The position advances on the device, so a graph can replay the call."""
        x = self.embedding[tokens]
        places = torch.arange(self.cache.shape[3], device=x.device)
        for one, layer in enumerate(self.layers):
            q, k, v = _parted(self.shape, layer.qkv(_normed(x)))
            for cache, new in zip(self.cache[one], (k, v), strict=True):
                cache.index_copy_(1, self.position, new[:, None])
            x = x + layer.out(_attention(q, *self.cache[one], places <= self.position))
            h = _normed(x)
            scores, ids = (h.float() @ layer.router.float().t()).topk(self.shape.top_k)
            self.chosen[one].copy_(ids)
            x = x + layer.experts(h, ids, scores.softmax(1))
        self.position += 1
        return _normed(x).float() @ self.logits.float().t()


@dataclass(frozen=True)
class Layer:
    qkv: zoo.torch.nn.Linear
    out: zoo.torch.nn.Linear
    router: torch.Tensor
    experts: zoo.torch.nn.Experts


def _layer(shape: Shape, normal: Callable[..., torch.Tensor]) -> Layer:
    def linear(rows: int, columns: int) -> zoo.torch.nn.Linear:
        made = torch.nn.Linear(columns, rows, shape.bias, device="meta")
        made.weight = torch.nn.Parameter(normal(rows, columns, over=columns))
        if shape.bias:
            made.bias = torch.nn.Parameter(normal(rows) / 4)
        return zoo.torch.nn.Linear.from_float(made, shape.format, frozen=True)

    size, gated, of_heads = shape.hidden, 2 * shape.intermediate, shape.heads * shape.head
    more: dict[str, Any] = dict(shape.options)
    if shape.bias:
        more |= {"gate_up_bias": normal(shape.experts, gated) / 4, "down_bias": normal(shape.experts, size) / 4}
    if shape.shared:
        more["shared"] = Shared(linear(gated, size), linear(size, shape.intermediate))
    weights = normal(shape.experts, gated, size, over=size), normal(shape.experts, size, shape.intermediate, over=shape.intermediate)
    experts = zoo.torch.nn.Experts.from_float(*weights, shape.format, frozen=True, **more)
    del weights
    qkv, out = linear((shape.heads + 2 * shape.kv_heads) * shape.head, size), linear(size, of_heads)
    return Layer(qkv, out, normal(shape.experts, size, over=size), experts)


class Shared(torch.nn.Module):
    """An expert of all tokens."""

    def __init__(self, gate_up: zoo.torch.nn.Linear, down: zoo.torch.nn.Linear):
        super().__init__()
        self.gate_up, self.down = gate_up, down

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        return self.down(functional.silu(gate) * up)


def _normed(x: torch.Tensor) -> torch.Tensor:
    return functional.rms_norm(x.float(), x.shape[-1:]).to(x.dtype)


def _parted(shape: Shape, qkv: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """q, k and v (sequences, heads, size of a head)."""
    sizes = [shape.heads * shape.head, *[shape.kv_heads * shape.head] * 2]
    return tuple(one.unflatten(-1, (-1, shape.head)) for one in qkv.split(sizes, dim=-1))


def _attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
    """q (sequences, heads, d), k and v (sequences, positions, kv_heads, d); `seen` are the positions that exist."""
    grouped = q.float().unflatten(1, (k.shape[2], -1))
    scores = torch.einsum("bgrd,bpgd->bgrp", grouped, k.float()) * q.shape[-1] ** -0.5
    shares = scores.masked_fill(~seen, -torch.inf).softmax(-1)
    return torch.einsum("bgrp,bpgd->bgrd", shares, v.float()).flatten(1).to(q.dtype)


@dataclass(frozen=True)
class Exact:
    """The decoder in float32. With a generator, numbers are off as roundings make them."""

    model: Decoder
    chosen: torch.Tensor  # (steps, layers, sequences, top_k)
    noise: torch.Generator | None = None
    mistake: str = ""

    @torch.no_grad()
    def __call__(self, tokens: torch.Tensor) -> torch.Tensor:
        """Logits (steps, sequences, vocabulary) of tokens (steps, sequences)."""
        shape, (steps, sequences) = self.model.shape, tokens.shape
        x = self.model.embedding[tokens].float()  # (steps, sequences, hidden): all positions at once
        for one, layer in enumerate(self.model.layers):
            qkv = self._linear(layer.qkv, self._stored(_normed(x)))
            q, k, v = _parted(shape, qkv.flatten(0, 1))
            k, v = (part.unflatten(0, (steps, sequences)).transpose(0, 1) for part in (k, v))
            if self.mistake == "a position too few":
                k, v = k.roll(1, 1), v.roll(1, 1)
            places = torch.arange(steps, device=x.device)
            seen = [_attention(part, k, v, places <= step) for step, part in enumerate(q.unflatten(0, (steps, sequences)))]
            x = self._stored(x + self._linear(layer.out, self._stored(torch.stack(seen))))
            x = self._stored(x + self._experts(layer, self._stored(_normed(x)), self.chosen[:, one]))
        return self._stored(_normed(x)) @ self.model.logits.float().t()

    def _stored(self, x: torch.Tensor) -> torch.Tensor:
        return self._off(x, BF16)

    def _read(self, x: torch.Tensor, format: str) -> torch.Tensor:
        """As a product reads its tokens."""
        if self.noise is None:
            return x
        form, rows = FORMATS[format], x.flatten(0, -2).bfloat16()
        rounded = zoo.torch.quantize(rows, form.tokens, **form.options).dequantize("f32")
        return self._off(x, float((rounded - rows.float()).norm() / rows.float().norm()))

    def _off(self, x: torch.Tensor, error: float) -> torch.Tensor:
        if self.noise is None:
            return x
        return x * (1 + error * torch.empty_like(x).normal_(generator=self.noise))

    def _linear(self, layer: zoo.torch.nn.Linear, x: torch.Tensor) -> torch.Tensor:
        bias = None if layer.bias is None else layer.bias.float()
        return self._stored(functional.linear(self._read(x, layer.format), layer.dequantize(torch.float32), bias))

    def _experts(self, layer: Layer, x: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        experts, x, ids = layer.experts, x.flatten(0, 1), ids.flatten(0, 1)
        shares = (x @ layer.router.float().t()).gather(1, ids).softmax(1)
        if self.mistake == "routing weights of the other choice":
            shares = shares.flip(1)
        if self.mistake == "the next expert":
            ids = (ids + 1) % experts.experts
        a, y = self._read(x, experts.format), torch.zeros_like(x)
        for number in ids.unique().tolist():
            token, choice = (ids == number).nonzero(as_tuple=True)
            first, second = numbers(experts.gate_up, number), numbers(experts.down, number)
            rows = functional.linear(a[token], first, _of(experts.gate_up.bias, number))
            h = self._read(self._activated(rows, experts), "fp8b128")  # also beside 4-bit weights
            d = self._stored(functional.linear(h, second, _of(experts.down.bias, number)))
            y.index_add_(0, token, d * shares[token, choice, None])
        if experts.shared is not None and self.mistake != "no shared expert":
            gate, up = self._linear(experts.shared.gate_up, x).chunk(2, dim=-1)
            y = y + self._linear(experts.shared.down, self._stored(functional.silu(gate) * up))
        return self._stored(y).view(*self.chosen.shape[:1], -1, x.shape[1])

    def _activated(self, rows: torch.Tensor, experts: zoo.torch.nn.Experts) -> torch.Tensor:
        gate, up = rows.unflatten(1, (2, -1) if experts.gates == "halves" else (-1, 2)).unbind(1 if experts.gates == "halves" else 2)
        if self.mistake == "gates and ups swapped":
            gate, up = up, gate
        if experts.activation == "silu":
            return functional.silu(gate) * up
        gate, up = gate.clamp(max=experts.limit), up.clamp(-experts.limit, experts.limit)
        return gate * torch.sigmoid(1.702 * gate) * (up + 1)


def _of(bias: torch.Tensor | None, number: int) -> torch.Tensor | None:
    return None if bias is None else bias[number].float()


def numbers(weights: Any, number: int) -> torch.Tensor:
    """The weights of one expert in float32."""
    if weights.format == "fp8b128":  # by squares of 128 x 128; all experts at once would not fit beside the model
        size = 128
        elements = weights.elements[number].flatten(0, -2).float()
        scales = weights.scales[number].float().repeat_interleave(size, 0).repeat_interleave(size, 1)
        return elements * scales[: elements.shape[0], : elements.shape[1]]
    return _every_expert(weights)[number].float()


def _every_expert(weights: Any) -> torch.Tensor:
    found: torch.Tensor | None = getattr(weights, "_numbers", None)
    if found is None:
        found = weights._numbers = weights.dequantize(torch.bfloat16)  # which holds four bits times a power of two exactly
    return found


MISTAKES = ("a position too few", "routing weights of the other choice", "the next expert", "gates and ups swapped", "no shared expert")


def mistakes(shape: Shape) -> list[str]:
    return [one for one in MISTAKES if shape.shared or one != "no shared expert"]


def check(model: Decoder, tokens: torch.Tensor, chosen: torch.Tensor, logits: torch.Tensor) -> tuple[float, float]:
    """The error of logits (steps, sequences, vocabulary) and its bound, relative to the logits. Layers with a mistake must exceed the bound."""
    exact = Exact(model, chosen)(tokens)
    draws = (Exact(model, chosen, torch.Generator(tokens.device).manual_seed(seed))(tokens) for seed in range(DRAWS))
    bound = MARGIN * float(torch.stack([(one - exact).square().mean() for one in draws]).mean().sqrt() / exact.square().mean().sqrt())
    error = float((logits - exact).norm() / exact.norm())
    for mistake in mistakes(model.shape):
        off = float((logits - Exact(model, chosen, mistake=mistake)(tokens)).norm() / exact.norm())
        assert off > 1.5 * bound, (mistake, off, bound)
    return error, bound
