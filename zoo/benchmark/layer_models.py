"""Sizes of mixture-of-experts layers that are timed whole."""

from __future__ import annotations

from dataclasses import dataclass

LIMIT, SLOPE = 7.0, 1.702  # of gpt-oss's activation


@dataclass(frozen=True)
class Model:
    """format: of zoo.torch.nn.Experts."""

    experts: int
    top_k: int = 4
    hidden: int = 2880
    inner: int = 2880
    format: str = "fp8_mxfp4"

    @property
    def gpt_oss(self) -> bool:
        return self.format == "fp8_mxfp4"


MODELS = {
    "gpt-oss-20b": Model(32),
    "gpt-oss-120b": Model(128),
    "qwen3-235b": Model(128, 8, 4096, 1536, "fp8b128"),
    "deepseek-v3": Model(256, 8, 7168, 2048, "fp8b128"),
}
