"""Weights that SGLang sends to another instance, or saves, as they are in memory.

The instance that reads them multiplies without zoo, since SGLang calls no method of a layer that could pack them. So layers that zoo serves
carry a reason, which SGLang reads before it sends or saves. Its transfer engine reads no reason: a hook keeps it from publishing addresses.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sglang.srt.plugins.hook_registry import HookRegistry, HookType

from zoo.sglang.support import logger
from zoo.torch.serving import check_signatures

_PARTS = "sglang.srt.model_executor.model_runner_components"
_PUBLISH = f"{_PARTS}.remote_instance_weight_transporter:RemoteInstanceWeightTransporter.maybe_register_and_publish_weight_info"
_SENT = "zoo has packed weights of this instance, which no other instance can read; start the instance that sends with ZOO_SGLANG=0"


def refuse_exports(layer: Any) -> None:
    layer._weight_export_error = _SENT


def _publish(usual: Callable[[Any], None], transporter: Any) -> None:
    """Around maybe_register_and_publish_weight_info."""
    if transporter.engine is not None and any(getattr(one, "_weight_export_error", None) == _SENT for one in transporter.model.modules()):
        logger.warning("zoo: the transfer engine publishes no weights: %s", _SENT)
        return None
    return usual(transporter)


def install() -> None:
    """Raises where SGLang is another, whose layers zoo then does not serve."""
    check_signatures({f"{_PARTS}.weight_exporter:WeightExporter._weight_export_unsupported_reason": "self", _PUBLISH: "self"})
    target = _PUBLISH.replace(":", ".")
    there = getattr(HookRegistry, "_hooks", {}).get(target, ())  # linear layers and experts both install this
    if all(_publish not in hook for hook in there):
        HookRegistry.register(target, _publish, HookType.AROUND)
