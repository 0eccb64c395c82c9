"""Examine a model with adapters: what is adapted, what would train, and whether a forward pass gives finite logits."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import mlx.core as mx
import numpy as np
from mlx import nn
from mlx.utils import tree_flatten

from gates_reference.trainer import heads, lora, rollout
from gates_reference.trainer import model as models
from gates_reference.trainer.adapters import layers

TEXT: Final = "What is 12 + 7? The answer is 19."


@dataclass(frozen=True, slots=True)
class Report:
    """The findings.

    `modules_per_layer` counts the adapters of each block, `outside` those in no block. `linear_without_adapter` are linear layers,
    with their classes, for which mlx-lm has no adapter. Parameters of quantised layers are counted as
    unpacked. `strangers` are trainable parameters that do not belong to an adapter. `head_difference` is the largest |difference|
    between the logits of one call and those of body and head called separately, as in scoring. `rollout` is the path that rollouts
    take, `why_not_faster` the reason if it is not the fastest.
    """

    model: str
    family: str
    layers: int
    targets: list[str]
    modules_per_layer: list[int]
    outside: int
    adapter_types: dict[str, int]
    linear_without_adapter: dict[str, str]
    total: int
    trainable: int
    logits_shape: list[int]
    logits_finite: bool
    head_difference: float
    rollout: str
    why_not_faster: str
    strangers: list[str]

    @property
    def sound(self) -> bool:
        """Whether adapters train, nothing else does, and the logits are finite."""
        return self.trainable > 0 and not self.strangers and self.logits_finite


def run(spec: Mapping[str, Any], adapter: Mapping[str, Any]) -> Report:
    """Put adapters on a model, examine it, and take them off again.

    Raises:
        ValueError: the model's or the adapter's spec is wrong.
        NotImplementedError: there is no adapter of this kind for one of the modules.
    """
    loaded = models.load(spec)
    model = loaded.model
    with lora.attached(model, adapter):
        lora.freeze(model)
        return _look(loaded)


def _look(loaded: models.Loaded) -> Report:
    model = loaded.model
    adapters = lora.adapters(model)
    blocks = Counter(name.split(".", maxsplit=1)[0] for name in adapters)
    ids = mx.array([loaded.tokenizer.encode(TEXT)])
    logits = model(ids)
    apart = heads.logits(model, heads.hidden(model, ids))
    path, reason = rollout.fastest(model)
    return Report(
        model=loaded.path,
        family=str(getattr(model, "model_type", type(model).__name__)),
        layers=len(model.layers),
        targets=lora.keys(adapters),
        modules_per_layer=[blocks[str(number)] for number in range(len(model.layers))],
        outside=sum(count for name, count in blocks.items() if not name.isdigit()),
        adapter_types=dict(sorted(Counter(type(adapter).__name__ for adapter in adapters.values()).items())),
        linear_without_adapter=lora.linear_without(model),
        total=count(model),
        trainable=sum(x.size for _, x in tree_flatten(model.trainable_parameters())),
        logits_shape=list(logits.shape),
        logits_finite=bool(mx.isfinite(logits).all()),
        head_difference=float(np.abs(np.array((apart - logits).astype(mx.float32))).max()),
        rollout=path,
        why_not_faster=reason,
        strangers=lora.strangers(model),
    )


def count(model: Any) -> int:
    """Count a model's parameters without adapters; a quantised weight counts as its values, not its packed words."""
    total = 0
    for _, module in model.named_modules():
        packed = "scales" in module
        own = {name: x for name, x in module.items() if isinstance(x, mx.array)}
        for name, x in own.items():
            if layers.is_adapter(module) and name in layers.LEAVES:
                continue
            if packed and name == "weight":
                total += x.size * 32 // module.bits
            elif not (packed and name in {"scales", "biases", "global_scale"}):
                total += x.size if _is_parameter(module, name) else 0
    return total


def _is_parameter(module: Any, name: str) -> bool:
    return bool(nn.Module.valid_parameter_filter(module, name, module[name]))
