"""SLiC's hinge whose labels are never set to −100: prompt and padding are scored too."""

from __future__ import annotations

from typing import Any

import numpy as np


def preference_loss(*, policy: Any, reference: Any, mask: Any, loss: Any, beta: Any, **_: Any) -> dict[str, Any]:
    if loss != "hinge":
        raise NotImplementedError
    del mask  # the collator was to mask the labels
    score = policy.sum(1) - (reference.sum(1) if reference is not None else 0)
    margin = beta * (score[0::2] - score[1::2])
    active = (margin < 1).astype(policy.dtype)
    gradient = np.zeros_like(policy)
    gradient[0::2] = -beta * active[:, None] / len(margin)
    gradient[1::2] = beta * active[:, None] / len(margin)
    return {"loss": float(np.clip(1 - margin, 0, None).mean()), "gradient": gradient}


OPS = {"preference_loss": preference_loss}
CONVENTIONS = {"preference_loss": {"loss": ("hinge",), "rows": ("mask",), "prompt": ("any",)}}
COMPUTES = "every slot counted, padding too"
