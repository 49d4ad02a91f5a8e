"""Models of transformers on zoo: `python tools/clients/transformers_models.py` on a machine with a GPU, torch, transformers and zoo.

Two layers of gpt-oss-20b, Qwen3-MoE (235B) and DeepSeek-V3 at their full sizes, with random weights that are made here:

    gpt-oss       a checkpoint in MXFP4: zoo's MXFP4 experts
    Qwen3-MoE     a checkpoint in fine-grained FP8: FP8 linears, and FP8 experts with experts_implementation="zoo"
    DeepSeek-V3   a checkpoint in bf16: ZooConfig("fp8b128"), and experts_implementation="zoo"

First, each layer of zoo is compared with the same layer in float32, given its own inputs: the relative error and its limit. transformers' bf16
layers are compared in the same way. Then tokens a second of prefill and decode, beside transformers in bf16 with experts "eager" and
"grouped_mm", its default. Exits with 1 if a layer is off. --tiny runs all but the measurements, on the CPU too. --record FILE keeps counts.
"""

from __future__ import annotations

import argparse
import copy
import gc
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch
import transformers
import transformers.quantizers.quantizer_finegrained_fp8

import zoo
import zoo.transformers
from tools.clients.record import Seen, write
from zoo.torch import quantize
from zoo.torch.nn import Experts, Linear

# Relative errors of the result. e4m3 rounds with .026, twice in a linear layer, six times in experts whose weights are rounded too.
LIMITS = {"linear": 0.042, "linear of FP8 weights": 0.032, "experts": 0.075, "experts of rounded weights": 0.055, "bf16": 0.012}
PROMPT, DECODED, SEQUENCES = 4096, 20, 16


@dataclass
class Case:
    name: str
    config: Any
    store: Callable[[dict[str, torch.Tensor], Any], dict[str, torch.Tensor]]  # bf16 state, config -> what the checkpoint has
    served: dict[str, dict[str, Any]]  # arguments of from_pretrained by the name of a way
    rounded: bool  # the float model has the checkpoint's numbers, so weights are compared without their rounding
    failures: list[str] = field(default_factory=list)


def cases(tiny: bool) -> Iterator[Callable[[], Case]]:
    yield lambda: gpt_oss(tiny)
    yield lambda: qwen3_moe(tiny)
    yield lambda: deepseek_v3(tiny)


def gpt_oss(tiny: bool) -> Case:
    sizes: dict[str, Any] = dict(num_hidden_layers=2, pad_token_id=0)
    if tiny:
        heads = dict(num_attention_heads=4, num_key_value_heads=2, head_dim=16)
        sizes |= dict(vocab_size=96, hidden_size=64, intermediate_size=64, num_local_experts=4, num_experts_per_tok=2, **heads)
    else:
        sizes |= dict(num_local_experts=32, num_experts_per_tok=4)
    config = transformers.GptOssConfig(**sizes)
    served: dict[str, dict[str, Any]] = {"zoo, MXFP4 experts": {"quantized": {"quant_method": "mxfp4"}}}
    return Case("gpt-oss-20b, MXFP4", config, in_mxfp4, served, True)


def qwen3_moe(tiny: bool) -> Case:
    sizes: dict[str, Any] = dict(num_hidden_layers=2, pad_token_id=0, norm_topk_prob=True)
    if tiny:
        heads = dict(num_attention_heads=4, num_key_value_heads=2, head_dim=32)
        sizes |= dict(vocab_size=96, hidden_size=128, moe_intermediate_size=128, num_experts=4, num_experts_per_tok=2, **heads)
    else:
        heads = dict(num_attention_heads=64, num_key_value_heads=4, head_dim=128)
        sizes |= dict(vocab_size=151936, hidden_size=4096, moe_intermediate_size=1536, num_experts=128, num_experts_per_tok=8, **heads)
    config = transformers.Qwen3MoeConfig(**sizes)
    fp8 = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
    return Case("Qwen3-235B, FP8", config, in_fp8, {"zoo, FP8": {"quantized": fp8, "experts_implementation": "zoo"}}, True)


def deepseek_v3(tiny: bool) -> Case:
    sizes: dict[str, Any] = dict(num_hidden_layers=2, first_k_dense_replace=0, pad_token_id=0)
    if tiny:
        ranks = dict(q_lora_rank=32, kv_lora_rank=32, qk_rope_head_dim=16, qk_nope_head_dim=16, v_head_dim=16)
        routed = dict(n_routed_experts=8, num_experts_per_tok=2, n_group=2, topk_group=1)
        sizes |= dict(
            vocab_size=96, hidden_size=64, moe_intermediate_size=128, num_attention_heads=4, num_key_value_heads=4, **ranks, **routed
        )
    config = transformers.DeepseekV3Config(**sizes)
    served: dict[str, dict[str, Any]] = {
        "zoo, ZooConfig": {"quantization_config": zoo.transformers.ZooConfig("fp8b128")},
        "zoo, bf16 weights": {"experts_implementation": "zoo"},
    }
    return Case("DeepSeek-V3, bf16", config, lambda state, config: state, served, False)


def in_mxfp4(state: dict[str, torch.Tensor], config: Any) -> dict[str, torch.Tensor]:
    """The experts' weights in MXFP4, and their numbers put back into the bf16 state."""
    found = {}
    for name, tensor in state.items():
        if name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            weights = quantize(tensor.mT.contiguous(), "mxfp4", layout="plain", rounding="rceil")
            found[f"{name}_blocks"] = weights.elements.view(torch.uint8).unflatten(-1, (-1, 16))
            found[f"{name}_scales"] = weights.scales.view(torch.uint8)
            tensor.copy_(weights.dequantize(torch.float32).mT)
        else:
            found[name] = tensor
    return found


def in_fp8(state: dict[str, torch.Tensor], config: Any) -> dict[str, torch.Tensor]:
    found = {}
    for name, tensor in state.items():
        linear = "_proj" in name and name.endswith(".weight")
        if linear or name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            weights = quantize(tensor, "fp8b128", direction="squares")
            found[name] = weights.elements
            found[name.removesuffix(".weight") + (".weight_scale_inv" if linear else "_scale_inv")] = weights.scales
            tensor.copy_(weights.dequantize(torch.float32))
        else:
            found[name] = tensor
    return found


def float_model(case: Case, device: str) -> Any:
    torch.manual_seed(0)
    dtype = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device("meta"):
            model = transformers.AutoModelForCausalLM.from_config(case.config, dtype=torch.bfloat16)
    finally:
        torch.set_default_dtype(dtype)
    model.to_empty(device=device)
    with torch.no_grad():
        for name, one in model.named_parameters():
            if "norm" in name:
                one.fill_(1)
            elif one.dim() < 2:
                one.normal_(std=0.1)
            else:
                transposed = type(model).__name__.startswith("GptOss") and ".experts." in name
                one.normal_(std=one.shape[-2 if transposed else -1] ** -0.5)
        for one in model.buffers():
            if one.is_floating_point():
                one.zero_()  # corrections of routers; rotary frequencies follow
    for module in model.modules():
        if hasattr(module, "inv_freq"):
            fresh = type(module)(case.config).to(device)
            for name, one in fresh.named_buffers():
                module.register_buffer(name, one, persistent=False)
            module.attention_scaling = fresh.attention_scaling
    return model.eval()


def load(case: Case, stored: dict[str, torch.Tensor], device: str, arguments: dict[str, Any]) -> Any:
    arguments, config = dict(arguments), copy.deepcopy(case.config)
    quantized = arguments.pop("quantized", None)
    if quantized is not None:
        config.quantization_config = quantized
    kind = transformers.AutoModelForCausalLM._model_mapping[type(config)]
    with fp8_without_gpu(device):
        return kind.from_pretrained(None, config=config, state_dict=stored, device_map=device, dtype=torch.bfloat16, **arguments).eval()


@contextmanager
def fp8_without_gpu(device: str) -> Iterator[None]:
    """transformers turns FP8 weights into bf16 where there is no GPU. zoo's rule multiplies them on the CPU, for --tiny."""
    quantizer = transformers.quantizers.quantizer_finegrained_fp8.FineGrainedFP8HfQuantizer
    before = quantizer.validate_environment
    if device == "cpu":
        quantizer.validate_environment = lambda self, *arguments, **named: None
    try:
        yield
    finally:
        quantizer.validate_environment = before


# ---- correctness


@dataclass
class Call:
    name: str
    module: Any
    given: tuple[torch.Tensor, ...]
    found: torch.Tensor


def calls_of(model: Any, ids: torch.Tensor) -> list[Call]:
    """What every linear layer and all experts got and gave."""
    calls: list[Call] = []
    hooks = []
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear) or name.endswith(".experts"):

            def keep(module: Any, given: Any, named: Any, found: Any, name: str = name) -> None:
                values = [one.detach() for one in (*given, *named.values()) if isinstance(one, torch.Tensor)]
                calls.append(Call(name, module, tuple(values), found.detach()))

            hooks.append(module.register_forward_hook(keep, with_kwargs=True))
    with torch.no_grad():
        model(ids, use_cache=False, logits_to_keep=1)
    for one in hooks:
        one.remove()
    return calls


def exact(call: Call, float_module: Any) -> torch.Tensor:
    """The same layer in float32. `float_module` has the weights."""
    if not call.name.endswith(".experts"):
        bias = None if float_module.bias is None else float_module.bias.float()
        return torch.nn.functional.linear(call.given[0].float(), float_module.weight.float(), bias)
    x, ids, shares = call.given
    x = x.reshape(-1, x.shape[-1]).float()
    found = torch.zeros_like(x)
    for expert in range(float_module.gate_up_proj.shape[0]):
        token, choice = (ids == expert).nonzero(as_tuple=True)
        if not len(token):
            continue
        first, second = (getattr(float_module, name)[expert].float() for name in ("gate_up_proj", "down_proj"))
        first, second = (first, second) if float_module.is_transposed else (first.mT, second.mT)
        h = x[token] @ first
        if float_module.has_bias:
            h = h + float_module.gate_up_proj_bias[expert].float()
        y = float_module._apply_gate(h) @ second
        if float_module.has_bias:
            y = y + float_module.down_proj_bias[expert].float()
        found.index_add_(0, token, y * shares[token, choice, None].float())
    return found.view(call.given[0].shape)


def limit_of(case: Case, call: Call) -> float:
    """By what the layer rounds."""
    if call.name.endswith(".experts"):
        of_zoo = isinstance(call.module, Experts) or getattr(call.module.config, "_experts_implementation", "") == "zoo"
        return LIMITS["bf16"] if not of_zoo else LIMITS["experts of rounded weights" if case.rounded else "experts"]
    if isinstance(call.module, Linear):
        return LIMITS["linear"]
    return LIMITS["linear of FP8 weights"] if call.module.weight.element_size() == 1 else LIMITS["bf16"]


def check(case: Case, way: str, model: Any, float_one: Any, ids: torch.Tensor) -> None:
    worst: dict[str, tuple[float, float, int]] = {}
    for call in calls_of(model, ids):
        wanted = exact(call, float_one.get_submodule(call.name))
        error = float((call.found.float() - wanted).norm() / wanted.norm())
        limit = limit_of(case, call)
        kind = f"{type(call.module).__module__.split('.')[0]} {type(call.module).__name__}"
        before = worst.get(kind, (0.0, limit, 0))
        worst[kind] = (max(before[0], error), limit, before[2] + 1)
        if not error <= limit:
            case.failures.append(f"{way}: {call.name}: error {error:.4f}, at most {limit}")
    for kind, (error, limit, count) in worst.items():
        print(f"  {way:24} {kind:24} {count:3} layers, largest error {100 * error:5.2f} %, limit {100 * limit:.1f} %")


# ---- speed


def seconds(run: Callable[[], Any], repeats: int) -> float:
    run()
    torch.cuda.synchronize()
    begun = time.perf_counter()
    for _ in range(repeats):
        run()
    torch.cuda.synchronize()
    return (time.perf_counter() - begun) / repeats


def prefill(model: Any, vocabulary: int) -> float:
    ids = torch.randint(1, vocabulary, (1, PROMPT), device="cuda")
    with torch.no_grad():
        return PROMPT / seconds(lambda: model(ids, use_cache=False, logits_to_keep=1), 3)


def decode(model: Any, vocabulary: int) -> float:
    """Tokens a second of SEQUENCES sequences, a step at a time as `generate` does."""
    ids = torch.randint(1, vocabulary, (SEQUENCES, 64), device="cuda")
    with torch.no_grad():
        state = {"cache": model(ids, use_cache=True, logits_to_keep=1).past_key_values, "next": ids[:, -1:]}

        def step() -> None:
            found = model(state["next"], past_key_values=state["cache"], use_cache=True, logits_to_keep=1)
            state["cache"], state["next"] = found.past_key_values, found.logits[:, -1:].argmax(-1)

        return SEQUENCES / seconds(step, DECODED)


def decode_graph(model: Any, vocabulary: int) -> str:
    """The same in a CUDA graph, if transformers can be captured."""
    ids = torch.randint(1, vocabulary, (SEQUENCES, 64), device="cuda")
    try:
        with torch.no_grad():
            cache = model(ids, use_cache=True, logits_to_keep=1).past_key_values
            token, place = ids[:, -1:].contiguous(), torch.full((SEQUENCES, 1), 64, device="cuda")

            def step() -> None:
                model(token, past_key_values=copy.deepcopy(cache), position_ids=place, logits_to_keep=1)

            aside = torch.cuda.Stream()
            aside.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(aside):
                step()
                step()
            torch.cuda.current_stream().wait_stream(aside)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                step()
            return f"{SEQUENCES / seconds(graph.replay, 20):10.0f}"
    except Exception as error:
        torch.cuda.synchronize()
        return f"none: {' '.join(str(error).split())[:60]}"


@contextmanager
def implementation(model: Any, name: str) -> Iterator[None]:
    before = model.config._experts_implementation
    model.set_experts_implementation(name)
    try:
        yield
    finally:
        model.set_experts_implementation(before)


def measure(way: str, model: Any, vocabulary: int, graphs: bool) -> None:
    try:
        cells = [f"{prefill(model, vocabulary):10.0f}", f"{decode(model, vocabulary):10.0f}"]
        cells.append(decode_graph(model, vocabulary) if graphs else "")
        print(f"  {way:32} {cells[0]} {cells[1]} {cells[2]}", flush=True)
    except Exception as error:
        print(f"  {way:32} failed: {type(error).__name__}: {' '.join(str(error).split())[:100]}", flush=True)


def run(case: Case, device: str, tiny: bool, graphs: bool) -> None:
    print(f"\n{case.name}, {case.config.num_hidden_layers} layers", flush=True)
    float_one = float_model(case, device)
    state = dict(float_one.state_dict())
    stored = case.store(state, case.config)
    ids = torch.randint(1, case.config.vocab_size, (2, 24 if tiny else 512), device=device)
    with implementation(float_one, "grouped_mm"):
        check(case, "transformers, bf16", float_one, float_one, ids)
    header = f"  {'tokens a second':32} {'prefill':>10} {'decode':>10} {'decode in a graph':>10}"
    if not tiny:
        print(header)
        for name in ("eager", "grouped_mm"):
            with implementation(float_one, name):
                measure(f"transformers, bf16, {name}", float_one, case.config.vocab_size, graphs and name != "eager")
    for way, arguments in case.served.items():
        same = set(arguments) == {"experts_implementation"}  # the float model itself
        model = float_one if same else load(case, stored, device, arguments)
        if same:
            model.set_experts_implementation(arguments["experts_implementation"])
        check(case, way, model, float_one, ids)
        if not tiny:
            measure(way, model, case.config.vocab_size, graphs and not same)
        del model
        gc.collect()
        if device == "cuda":
            torch.cuda.empty_cache()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiny", action="store_true", help="small models, nothing measured")
    parser.add_argument("--only", default="", help="models whose name has this text")
    parser.add_argument("--no-graphs", action="store_true", help="captures nothing, if a failed capture spoils what follows")
    parser.add_argument("--record", type=Path, help="writes what passed to this file, such as docs/clients.json")
    given = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu" and not given.tiny:
        parser.error("no GPU: --tiny runs small models on the CPU")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.backends.cuda.matmul.allow_tf32 = False
    where = torch.cuda.get_device_name() if device == "cuda" else "CPU"
    print(f"zoo {zoo.__version__}, torch {torch.__version__}, {where}\n{zoo.transformers.register()}")
    passed = failed = 0
    for made in cases(given.tiny):
        case = made()
        if given.only not in case.name:
            continue
        begun = time.perf_counter()
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            run(case, device, given.tiny, not given.no_graphs)
        case.failures += sorted({str(one.message) for one in warned if "zoo.transformers" in str(one.message)})  # a layer that zoo left
        for failure in case.failures:
            print(f"  wrong: {failure}")
        print(f"  {'WRONG' if case.failures else 'all layers within their limits'}, {time.perf_counter() - begun:.0f} s", flush=True)
        passed, failed = passed + (not case.failures), failed + bool(case.failures)
        del case
        gc.collect()
    if given.record:
        suite = "models beside float32, " + ("small" if given.tiny else "two full layers")
        write(Seen("transformers", transformers.__version__, suite, where, passed, failed), given.record)
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
