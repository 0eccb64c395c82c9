"""A linear layer with a low-rank adapter as PEFT writes it: torch's dropout, two linear layers, a scaling.

gates check trainer.lora-dropout --subject tests/honest/torch_trainer.py --python PYTHON
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

VERSIONS = {"torch": torch.__version__}


def lora_linear(*, x: Any, weight: Any, a: Any, b: Any, scale: float, p: float, draw: Any) -> dict[str, Any]:
    """Add the adapter's product; what was kept is seen in the dropout of ones with the same seed."""
    inputs, base, down, up = (torch.from_numpy(array) for array in (x, weight, a.T.copy(), b.T.copy()))
    kept = torch.ones_like(inputs)
    dropped = inputs
    if draw is not None:
        seed = sum(int(number) * 1_000_003**place for place, number in enumerate(draw))
        torch.manual_seed(seed)
        dropped = functional.dropout(inputs, p)
        torch.manual_seed(seed)
        kept = functional.dropout(kept, p)
    y = functional.linear(inputs, base)
    y = y + functional.linear(functional.linear(dropped, down), up) * scale
    return {"y": y.numpy(), "kept": kept.numpy()}


OPS = {"lora_linear": lora_linear}
