"""Low-rank adapters (LoRA, Hu et al. 2022) by peft, inside a transformers model's own layers."""

from dataclasses import asdict, dataclass
from typing import Any

from torch import nn

from ccr_cli.errors import require_packages


@dataclass(frozen=True)
class Lora:
    """Settings of a text encoder's adapters."""

    rank: int
    alpha: float
    """The adapters' output is scaled by alpha / rank."""
    targets: tuple[str, ...]
    """Names of the linear maps that get an adapter."""
    first: int = 0
    """Lowest layer with adapters."""

    def config(self) -> dict[str, Any]:
        """Returns the settings as JSON values."""
        return {**asdict(self), "targets": list(self.targets)}


def layers_of(model: nn.Module) -> nn.ModuleList:
    """The layers of a model, from the lowest."""
    return max((part for part in model.modules() if isinstance(part, nn.ModuleList)), key=len)


def targets_of(model: Any) -> tuple[str, ...]:
    """Names of the linear maps that peft adapts in models of this type (query and value); all for an unknown type.

    Raises:
        UnavailableError: peft is not installed.
    """
    require_packages("LoRA", "lora", "peft")
    from peft.utils.constants import TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING as TABLE

    linear = {name.rpartition(".")[2] for name, part in layers_of(model).named_modules() if isinstance(part, nn.Linear)}
    known = linear.intersection(TABLE.get(model.config.model_type, ()))
    return tuple(sorted(known or linear))


def add_lora(model: Any, lora: Lora) -> None:
    """Adds adapters to a model, which change nothing at first, and freezes all other weights.

    Raises:
        UnavailableError: peft is not installed.
    """
    require_packages("LoRA", "lora", "peft")
    from peft import LoraConfig, inject_adapter_in_model

    settings = LoraConfig(r=lora.rank, lora_alpha=lora.alpha, target_modules=list(lora.targets))  # type: ignore[arg-type]
    inject_adapter_in_model(settings, nn.ModuleList(layers_of(model)[lora.first :]))
    for name, weight in model.named_parameters():
        weight.requires_grad_("lora_" in name)


def merge_lora(model: nn.Module) -> None:
    """Merges the adapters into the weights, and removes them."""
    from peft.tuners.tuners_utils import BaseTunerLayer

    for name, part in list(model.named_modules()):
        if isinstance(part, BaseTunerLayer):
            part.merge()
            setattr(model.get_submodule(name.rpartition(".")[0]), name.rpartition(".")[2], part.get_base_layer())
