"""Experts from tensors as published checkpoints name and store them, beside the numbers that those stand for."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from tests.checkpoints.published import KINDS, Sizes  # noqa: E402
from tests.torch.nn.expert_layers import FP4_AS_FP8, MARGIN, Problem, deviation, in_float64, mutants, problem  # noqa: E402
from tests.torch.nn.test_experts_serving import h_rounding, rounding  # noqa: E402
from zoo.errors import ArgumentError  # noqa: E402
from zoo.torch import quantize  # noqa: E402
from zoo.torch.nn import Experts  # noqa: E402
from zoo.torch.nn.from_checkpoint import usual_format  # noqa: E402

SIZES = Sizes(experts=4, hidden=288, intermediate=128)
DTYPES = {
    "U8": torch.uint8,
    "I8": torch.int8,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E8M0": torch.uint8,
    "F32": torch.float32,
    "BF16": torch.bfloat16,
}
PREFIX = "model.layers.3.mlp.experts."


def tensor(dtype, array):
    array = np.array(array)
    stored = array.view(np.int16) if dtype == "BF16" else array.view(np.uint8) if dtype.startswith("F8") else array
    return torch.from_numpy(stored).view(DTYPES[dtype])


def published(name):
    """Tensors by name, and the layer that they stand for."""
    kind = KINDS[name]
    made = kind.make(np.random.default_rng(3), SIZES)
    numbers = kind.numbers({key: array for key, (_, array) in made.items()}, SIZES.experts)
    p = problem(hidden=SIZES.hidden, intermediate=SIZES.intermediate)
    parts = {one: torch.from_numpy(getattr(numbers, one)) for one in ("gate", "up", "down", "gate_bias", "up_bias", "down_bias")}
    if name != "gpt-oss":
        parts = {one: value for one, value in parts.items() if "bias" not in one}
    p = replace(p, x=p.x / 2, activation=kind.activation, limit=kind.limit or None, **parts)
    return {key: tensor(*one) for key, one in made.items()}, kind.prefix, p


def deepseek_fp8(intermediate=128):
    p, tensors = problem(hidden=256, intermediate=intermediate), {}
    parts = {}
    for name, weights in (("gate", p.gate), ("up", p.up), ("down", p.down)):
        q = quantize(weights, "fp8b128", direction="squares")
        parts[name] = q.dequantize("f32")
        for expert in range(4):
            tensors[f"{PREFIX}{expert}.{name}_proj.weight"] = q.elements[expert].clone()
            tensors[f"{PREFIX}{expert}.{name}_proj.weight_scale_inv"] = q.scales[expert].clone()
    return tensors, PREFIX, replace(p, **parts)


def check(layer, p: Problem):
    found, name = layer(p.x, p.ids, p.weights).double(), layer.format
    allowed = MARGIN * deviation(p, rounding(name, p.x), h_rounding(name, p.x), FP4_AS_FP8 if name == "fp8_nvfp4" else 0.0)
    assert (found - in_float64(p)).norm() <= allowed
    for mistake, mutant in mutants(p).items():
        if mistake != "no limit":  # which no number reaches
            assert (found - in_float64(mutant)).norm() > allowed, mistake


CASES = [("gpt-oss", None), ("gpt-oss", "mxfp8_mxfp4"), ("gpt-oss", "bf16_mxfp4"), ("DeepSeek-V4", None), ("DeepSeek-V4", "mxfp4")]
CASES += [(name, format) for name in ("ModelOpt", "compressed-tensors") for format in (None, "bf16_nvfp4", "nvfp4")]


@pytest.mark.parametrize(("name", "format"), CASES)
def test_a_published_layer_is_the_layer_of_its_numbers(name, format):
    tensors, prefix, p = published(name)
    layer = Experts.from_checkpoint({**tensors, "model.norm.weight": torch.ones(3)}, prefix, format=format)
    assert layer.format == (format or ("fp8_nvfp4" if name in ("ModelOpt", "compressed-tensors") else "fp8_mxfp4")) and layer.frozen
    check(layer, p)


def test_fp8_weights_keep_their_bytes_and_their_scales():
    tensors, prefix, p = deepseek_fp8()
    layer = Experts.from_checkpoint(tensors, prefix)
    assert torch.equal(layer.down.elements[2].view(torch.uint8), tensors[f"{prefix}2.down_proj.weight"].view(torch.uint8))
    check(layer, p)


def minimax_m3(squares):
    p, tensors = problem(hidden=288, intermediate=128, activation="gpt_oss", limit=7.0), {}
    p, parts = replace(p, gate_bias=None, up_bias=None, down_bias=None), {}
    for name, matrix, weights in (("w1", "gate", p.gate), ("w3", "up", p.up), ("w2", "down", p.down)):
        q = quantize(weights, "mxfp8", direction="squares" if squares else "rows", layout="plain", rounding="rceil")
        parts[matrix] = q.dequantize("f32")
        for expert in range(4):
            tensors[f"{PREFIX}{expert}.{name}.weight"] = q.elements[expert].clone()
            tensors[f"{PREFIX}{expert}.{name}.weight_scale_inv"] = q.scales[expert].view(torch.uint8).clone()
    return tensors, PREFIX, replace(p, **parts)


@pytest.mark.parametrize(("squares", "format"), [(False, "fp8b128"), (True, "mxfp8")])
def test_weights_in_mxfp8_run_in_the_format_of_hopper_and_of_blackwell(squares, format):
    tensors, prefix, p = minimax_m3(squares)
    layer = Experts.from_checkpoint(tensors, prefix, format=None if format == "mxfp8" else format)
    assert layer.format == format and layer.gate_up.elements.dtype == torch.float8_e4m3fn
    assert (layer.down.dequantize(torch.float32) - p.down).norm() < 1e-6 * p.down.norm()
    check(layer, p)


@pytest.mark.parametrize(("capability", "format"), [((9, 0), "fp8b128"), ((10, 0), "mxfp8")])
def test_mxfp8_runs_in_fp8b128_where_a_gpu_lacks_its_products(capability, format, monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    assert usual_format("mxfp8", torch.device("cuda")) == format


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_scales_of_sixteen_bits_are_the_numbers_that_they_are(dtype):
    """Checkpoints of Qwen3 have them."""
    tensors, prefix, p = deepseek_fp8()
    narrow = {name: one.to(dtype) if "scale" in name else one for name, one in tensors.items()}
    wide = {name: one.float() for name, one in narrow.items() if "scale" in name}
    layer, wanted = (Experts.from_checkpoint(one, prefix) for one in (narrow, {**narrow, **wide}))
    assert torch.equal(layer.down.scales, wanted.down.scales) and torch.equal(layer.gate_up.scales, wanted.gate_up.scales)
    assert torch.equal(layer(p.x, p.ids, p.weights), wanted(p.x, p.ids, p.weights))


def test_gates_and_ups_that_are_scaled_apart_keep_their_scales():
    tensors, prefix, p = published("ModelOpt")
    for expert in range(4):
        tensors[f"{prefix}{expert}.up_proj.weight_scale_2"] *= 2.5
    check(Experts.from_checkpoint(tensors, prefix), replace(p, up=2.5 * p.up))
    with pytest.raises(ArgumentError, match="these have two; use format 'fp8_nvfp4'"):
        Experts.from_checkpoint(tensors, prefix, format="nvfp4")


def test_a_rank_loads_its_experts_alone():
    tensors, prefix, p = deepseek_fp8()
    whole = Experts.from_checkpoint(tensors, prefix)
    kept = {name: one for name, one in tensors.items() if name.removeprefix(prefix)[0] in "0123"}
    for first in (0, 2):
        layer = Experts.from_checkpoint(kept, prefix, experts=range(first, first + 2), check_ids=True)
        ids = torch.where((p.ids >= first) & (p.ids < first + 2), p.ids, -1)
        assert torch.equal(layer(p.x, p.ids, p.weights), whole(p.x, ids, p.weights))


def test_a_file_and_a_folder_of_shards_give_the_layer_of_their_tensors(tmp_path):
    safetensors = pytest.importorskip("safetensors.torch")
    tensors, prefix, p = published("gpt-oss")
    wanted = Experts.from_checkpoint(tensors, prefix)(p.x, p.ids, p.weights)
    safetensors.save_file(tensors, tmp_path / "one.safetensors")
    assert torch.equal(Experts.from_checkpoint(tmp_path / "one.safetensors", prefix)(p.x, p.ids, p.weights), wanted)
    folder, names = tmp_path / "model", sorted(tensors)
    folder.mkdir()
    shards = {"a.safetensors": names[:3], "b.safetensors": names[3:]}
    for file, some in shards.items():
        safetensors.save_file({name: tensors[name] for name in some}, folder / file)
    index = {"weight_map": {name: file for file, some in shards.items() for name in some} | {"other": "missing.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert torch.equal(Experts.from_checkpoint(folder, prefix)(p.x, p.ids, p.weights), wanted)
    (folder / "model.safetensors.index.json").write_text("[]")
    with pytest.raises(ArgumentError, match="no index of safetensors"):
        Experts.from_checkpoint(folder, prefix)
    with pytest.raises(ArgumentError, match="cannot read"):
        Experts.from_checkpoint(tmp_path / "none.safetensors", prefix)


def test_what_is_no_whole_layer_is_a_sentence():
    tensors, prefix, _ = deepseek_fp8()
    without = {name: one for name, one in tensors.items() if not name.endswith("2.up_proj.weight")}
    odd = {**tensors, f"{prefix}1.gate_proj.weight": torch.zeros(64, 256, dtype=torch.float8_e4m3fn)}
    cases = [
        ((tensors, "other."), {}, "no tensor's name begins with 'other.'"),
        ((tensors, prefix), {"experts": [0, 1]}, r"experts: expected a range, such as range\(0, 4\), got "),
        ((without, prefix), {}, r"no tensor .*2\.up_proj\.weight'"),
        ((odd, prefix), {}, "expected one shape of all experts"),
        (({f"{prefix}0.gate_proj.weight": torch.zeros(4, 4)}, prefix), {}, "of no kind that zoo knows"),
        ((tensors, prefix, "gguf"), {}, "no kind 'gguf'; there are gpt_oss"),
        ((tensors, prefix), {"experts": range(2, 6)}, r"expected a range inside 0 \.\. 4"),
        ((tensors, prefix), {"format": "fp8_mxfp4"}, "multiplies weights in mxfp4, and these are in fp8b128"),
    ]
    for given, named, words in cases:
        with pytest.raises(ArgumentError, match=words):
            Experts.from_checkpoint(*given, **named)
    narrow, prefix, _ = deepseek_fp8(intermediate=64)
    with pytest.raises(ArgumentError, match="no multiple of 128"):
        Experts.from_checkpoint(narrow, prefix)
