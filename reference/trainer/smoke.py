"""One look at a model with adapters on: what is adapted, what would train, and whether a forward pass holds together."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import mlx.core as mx
import numpy as np
from mlx import nn
from mlx.utils import tree_flatten

from reference.trainer import heads, lora
from reference.trainer import model as models
from reference.trainer.adapters import layers, targets

TEXT: Final = "What is 12 + 7? The answer is 19."


@dataclass(frozen=True, slots=True)
class Report:
    """What was found.

    `modules_per_layer` counts adapters block by block, `outside` those that stand in no block. Parameters of quantised layers are
    counted as what they stand for. `strangers` are parameters that would train and are no adapter's own. `head_difference` is
    the largest |difference| of the logits when body and head are called apart, as scoring does, and together.
    """

    model: str
    family: str
    layers: int
    targets: list[str]
    modules_per_layer: list[int]
    outside: int
    adapter_types: dict[str, int]
    total: int
    trainable: int
    logits_shape: list[int]
    logits_finite: bool
    head_difference: float
    strangers: list[str]

    @property
    def sound(self) -> bool:
        """Whether adapters train, nothing else does, and the logits are numbers."""
        return self.trainable > 0 and not self.strangers and self.logits_finite


def run(spec: Mapping[str, Any], adapter: Mapping[str, Any]) -> Report:
    """Put adapters on a model, look, and take them off again.

    Raises:
        ValueError: the model's or the adapter's spec cannot be honoured.
        NotImplementedError: there is no adapter of this kind for one of the modules.
    """
    loaded = models.load(spec)
    model = loaded.model
    with lora.attached(model, adapter):
        lora.freeze(model)
        return _look(loaded)


def _look(loaded: models.Loaded) -> Report:
    model = loaded.model
    found = lora.adapters(model)
    blocks = Counter(name.split(".", maxsplit=1)[0] for name in found)
    ids = mx.array([loaded.tokenizer.encode(TEXT)])
    logits = model(ids)
    apart = heads.logits(model, heads.hidden(model, ids))
    return Report(
        model=loaded.path,
        family=str(getattr(model, "model_type", type(model).__name__)),
        layers=len(model.layers),
        targets=targets.keys(found),
        modules_per_layer=[blocks[str(number)] for number in range(len(model.layers))],
        outside=sum(count for name, count in blocks.items() if not name.isdigit()),
        adapter_types=dict(sorted(Counter(type(adapter).__name__ for adapter in found.values()).items())),
        total=count(model),
        trainable=sum(x.size for _, x in tree_flatten(model.trainable_parameters())),
        logits_shape=list(logits.shape),
        logits_finite=bool(mx.isfinite(logits).all()),
        head_difference=float(np.abs(np.array((apart - logits).astype(mx.float32))).max()),
        strangers=lora.strangers(model),
    )


def count(model: Any) -> int:
    """How many parameters a model has, adapters left out: a quantised weight counts its values, not its words."""
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
