"""gpt-oss checkpoints in MXFP4: their blocks and scales become zoo's experts, without rounding and without triton kernels from a hub.

The quantizer takes the place of transformers' own for the method "mxfp4". What zoo does not serve stays with it: quantising a bf16 model to
MXFP4, `Mxfp4Config(dequantize=True)`, and GPUs without cubins. A model that is spread over ranks is refused.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers.quantizers.quantizer_mxfp4 import Mxfp4HfQuantizer
from transformers.quantizers.quantizers_utils import should_convert_module

from zoo.errors import ArgumentError
from zoo.torch.nn import Experts
from zoo.torch.nn.formats import on_gpu
from zoo.torch.serving import no_driver
from zoo.transformers.declined import declined
from zoo.transformers.experts import arrangement
from zoo.transformers.gating import Gate
from zoo.transformers.quantizer import lacking, saved, spread, undispatched

_CLASS = "GptOssExperts"


class Stored(torch.nn.Module):
    """Tensors by the names and shapes of the checkpoint, until all are loaded."""

    def __init__(self, experts: int, hidden: int, intermediate: int):
        super().__init__()
        for name, rows, columns in (("gate_up_proj", 2 * intermediate, hidden), ("down_proj", hidden, intermediate)):
            shapes = {"blocks": (experts, rows, columns // 32, 16), "scales": (experts, rows, columns // 32)}
            for part, shape in shapes.items():
                self.register_buffer(f"{name}_{part}", torch.empty(shape, dtype=torch.uint8))
            self.register_parameter(f"{name}_bias", torch.nn.Parameter(torch.empty(experts, rows), requires_grad=False))


class ZooMxfp4Quantizer(Mxfp4HfQuantizer):
    def __init__(self, quantization_config: Any, **kwargs: Any):
        super().__init__(quantization_config, **kwargs)
        self.takes = False
        self.expected: dict[str, torch.Size] = {}
        self.files: list[str] = []
        self.gates: dict[str, Gate] = {}  # by the names of experts
        self.environment: tuple[tuple[Any, ...], dict[str, Any]] = (), {}

    def validate_environment(self, *arguments: Any, **others: Any) -> None:
        self.environment, self.takes = (arguments, others), True
        if reason := self._reason():
            self._leave(reason)

    def _leave(self, reason: str) -> None:
        self.takes, (arguments, others) = False, self.environment
        declined("Mxfp4Config", reason)
        super().validate_environment(*arguments, **others)

    def _reason(self) -> str:
        if self.quantization_config.dequantize:
            return "dequantize=True"
        if not self.pre_quantized:
            return "the checkpoint is not in MXFP4; ZooConfig('fp8_mxfp4') quantises it"
        if torch.cuda.is_available() and not {"fp8_mxfp4", "mxfp8_mxfp4"} & set(on_gpu(torch.cuda.get_device_capability())):
            return f"zoo has no cubins for {torch.cuda.get_device_name()}"
        return no_driver() if torch.cuda.is_available() else ""

    def _process_model_before_weight_loading(self, model: Any, **others: Any) -> None:
        if self.takes:
            found = {name: arrangement(one) for name, one in model.named_modules() if type(one).__name__ == _CLASS}
            limit = getattr(model.config, "swiglu_limit", None)  # which transformers' MXFP4 experts read; its float experts may not
            self.gates = {name: gate._replace(limit=limit or gate.limit) for name, gate in found.items() if isinstance(gate, Gate)}
            if unlike := next((why for why in found.values() if isinstance(why, str)), None):
                self._leave(unlike)
        if not self.takes:
            super()._process_model_before_weight_loading(model, **others)
            return
        if spread(model, "tp", "fsdp", "dp_replicate", "pp", "ep"):
            raise ArgumentError("zoo.transformers: MXFP4 experts are not spread over ranks; call zoo.transformers.unregister() first")
        self.files = [str(file) for file in others.get("checkpoint_files") or [] if str(file).endswith(".safetensors")]
        keep = self.get_modules_to_not_convert(model, self.quantization_config.modules_to_not_convert, model._keep_in_fp32_modules)
        for name, module in list(model.named_modules()):
            if type(module).__name__ == _CLASS and should_convert_module(name, keep):
                with torch.device("meta"):
                    stored = Stored(module.num_experts, module.hidden_size, module.intermediate_size)
                model.set_submodule(name, stored)
                self.expected |= {f"{name}.{part}": one.shape for part, one in stored.state_dict().items()}

    def _process_model_after_weight_loading(self, model: Any, **others: Any) -> Any:
        if not self.takes:
            return super()._process_model_after_weight_loading(model, **others)
        tensors = {name: model.get_parameter_or_buffer(name) for name in self.expected}
        wrong = [f"{name} is missing" for name, one in tensors.items() if not getattr(one, "_is_hf_initialized", one.is_meta)]
        if self.files and any(one.is_meta for one in tensors.values()):  # accelerate keeps no marks of tensors that it takes away
            parts = sorted({name.rpartition(".")[2] for name in self.expected})
            wrong += lacking(saved(self.files, parts), self.expected, parts)
        wrong += [
            f"{name}: expected {tuple(shape)}, got {tuple(tensors[name].shape)}"
            for name, shape in self.expected.items()
            if tensors[name].shape != shape
        ]
        if wrong:
            raise ArgumentError(f"from_pretrained: not the files of a gpt-oss model in MXFP4: {'; '.join(wrong[:4])}")
        del tensors
        with undispatched(model):
            for name, module in list(model.named_modules()):
                if isinstance(module, Stored):
                    stored = {f"{name}.{part}": one for part, one in module.state_dict().items()}
                    made = Experts.from_checkpoint(stored, f"{name}.", "gpt_oss", **self.gates[name]._asdict())
                    model.set_submodule(name, made.train(module.training))
        return model

    def get_weight_conversions(self) -> Any:
        return [] if self.takes else super().get_weight_conversions()

    def get_state_dict_and_metadata(self, model: Any) -> Any:
        if not self.takes:
            return super().get_state_dict_and_metadata(model)
        found = model.state_dict()
        for name, module in model.named_modules():
            if isinstance(module, Experts):
                found = {key: one for key, one in found.items() if not key.startswith(f"{name}.")} | _stored(name, module)
        return found, {}


def _stored(name: str, experts: Experts) -> dict[str, torch.Tensor]:
    """The tensors of the checkpoint, by their names."""
    found = {}
    for part in ("gate_up", "down"):
        matrix = getattr(experts, part)
        plain = matrix.plain()
        found[f"{name}.{part}_proj_blocks"] = plain.elements.view(torch.uint8).unflatten(-1, (-1, 16))
        found[f"{name}.{part}_proj_scales"] = plain.scales.view(torch.uint8)
        found[f"{name}.{part}_proj_bias"] = matrix.bias
    return found
