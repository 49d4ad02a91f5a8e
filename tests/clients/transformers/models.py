"""Small models of transformers with random weights."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", reason="transformers is not installed: pip install 'cubin-zoo[transformers]'")

from packaging.version import Version  # noqa: E402

from zoo.errors import ArgumentError  # noqa: E402

WIDE = {"vocab_size": 96, "num_hidden_layers": 2, "max_position_embeddings": 64, "pad_token_id": 0, "eos_token_id": 95}
HEADS = {"hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}
RANKS = {"q_lora_rank": 32, "kv_lora_rank": 32, "qk_rope_head_dim": 16, "qk_nope_head_dim": 16, "v_head_dim": 16}


def config(name: str, **changes):
    top = {"num_experts_per_tok": 2}
    given = {
        "gpt_oss": ("GptOssConfig", {**HEADS, **top, "intermediate_size": 96, "num_local_experts": 4, "sliding_window": 16}),
        "qwen3_moe": ("Qwen3MoeConfig", {**HEADS, **top, "intermediate_size": 128, "moe_intermediate_size": 128, "num_experts": 4}),
        "deepseek_v3": (
            "DeepseekV3Config",
            {
                "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 4, "intermediate_size": 128, "moe_intermediate_size": 128,
                "n_routed_experts": 4, "n_group": 2, "topk_group": 1, "n_shared_experts": 1, "first_k_dense_replace": 1, **RANKS, **top,
            },
        ),
        "llama": ("LlamaConfig", {**HEADS, "intermediate_size": 128}),
        "qwen3": ("Qwen3Config", {**HEADS, "intermediate_size": 128}),
        "arcee": ("ArceeConfig", {**HEADS, "intermediate_size": 128}),
    }[name]  # fmt: skip
    return getattr(transformers, given[0])(**{**WIDE, **given[1], **changes})


MIXTURES, DENSE = ("gpt_oss", "qwen3_moe", "deepseek_v3"), ("llama", "qwen3")


def model(name: str, seed: int = 0, **changes):
    """In float32, with weights that keep the size of what they multiply."""
    torch.manual_seed(seed)
    made = transformers.AutoModelForCausalLM.from_config(config(name, **changes), dtype=torch.float32).eval()
    with torch.no_grad():
        for part, one in made.named_parameters():
            if one.dim() > 1:
                rows = one.shape[-2] if name == "gpt_oss" and ".experts." in part and "bias" not in part else one.shape[-1]
                one.normal_(std=rows**-0.5)
            elif "bias" in part:
                one.normal_(std=0.1)
    return made


def tokens(count: int = 9, seed: int = 1):
    return torch.randint(1, 95, (2, count), generator=torch.Generator().manual_seed(seed))


def calls_of(one, ids, kinds):
    """(name, module, input tensors, result) of every module of these kinds."""
    found, hooks = [], []
    for name, module in one.named_modules():
        if isinstance(module, kinds):

            def keep(module, given, named, result, name=name):
                found.append((name, module, [value for value in (*given, *named.values()) if isinstance(value, torch.Tensor)], result))

            hooks.append(module.register_forward_hook(keep, with_kwargs=True))
    with torch.no_grad():
        one(ids)
    for hook in hooks:
        hook.remove()
    return found


def relative(found, wanted) -> float:
    return float((found.double() - wanted.double()).norm() / wanted.double().norm())


def refused(name: str, what: str):
    """What is raised where a file's tensor of that name is "missing", or has another shape than is "expected"."""
    if what == "expected" and Version(transformers.__version__) >= Version("5.24"):  # which looks at shapes before zoo does
        return pytest.raises(RuntimeError, match="ignore_mismatched_sizes")
    return pytest.raises(ArgumentError, match=f"{name}.*{what}")
