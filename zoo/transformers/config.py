"""The quantisation config under which `from_pretrained` makes zoo's layers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from transformers.utils.quantization_config import QuantizationConfigMixin

from zoo.errors import ArgumentError
from zoo.torch.nn.formats import TRAINING, format_of

METHOD = "zoo"


class ZooConfig(QuantizationConfigMixin):
    """`from_pretrained(path, quantization_config=ZooConfig("fp8b128"))`, after `zoo.transformers.register()`.

    format: of linear layers and experts, as in docs/layers.md.
    experts_format: of experts, where it is another.
    frozen: False keeps the weights as parameters that train. `save_pretrained` then writes the checkpoint of a model without zoo.
    modules_to_not_convert: names, as in transformers' other configs, beside the output layer, routers and what shares its weight.
    """

    def __init__(
        self,
        format: str = "fp8b128",
        experts_format: str | None = None,
        frozen: bool = True,
        modules_to_not_convert: Iterable[str] | None = None,
        quant_method: str = METHOD,
        **others: Any,
    ):
        if quant_method != METHOD or others:
            raise ArgumentError(f"ZooConfig: no argument {', '.join(others) or f'quant_method={quant_method!r}'}")
        if not isinstance(frozen, bool):
            raise ArgumentError(f"ZooConfig: frozen: expected True or False, got {frozen!r}")
        for one in (format, experts_format or format):
            name = format_of(one).name
            if not frozen and name not in TRAINING:
                raise ArgumentError(f"ZooConfig: format '{name}' does not train; frozen=False needs {' or '.join(TRAINING)}")
        if not frozen and experts_format not in (None, "fp8b128"):
            raise ArgumentError("ZooConfig: experts of a model that trains are in fp8b128; leave out experts_format")
        if isinstance(modules_to_not_convert, str):
            raise ArgumentError(f"ZooConfig: modules_to_not_convert is a list of names, such as [{modules_to_not_convert!r}]")
        named: Any = modules_to_not_convert
        if named is not None:
            named = list(named) if isinstance(named, Iterable) else [named]  # a set has no place in a file
        if not all(isinstance(one, str) for one in named or ()):
            raise ArgumentError(f"ZooConfig: modules_to_not_convert is a list of names, such as ['o_proj'], got {modules_to_not_convert!r}")
        self.quant_method = METHOD
        self.format, self.experts_format, self.frozen = format, experts_format, frozen
        self.modules_to_not_convert = named
