"""Mutations of the accumulation over micro-batches; loaded in workers only."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from gates.families.patching import Fn, mutation


@mutation
def denominators_of_parts(original: Fn, aggregation: str, part: Any, whole: Any, counts: Any) -> Any:
    """Divide each micro-batch by its own counts, and average the micro-batches."""
    tokens = np.array(counts)[:, 0]
    own = replace(
        whole,
        rows=len(tokens),
        tokens=int(tokens.sum()),
        group_tokens=np.bincount(part.groups, weights=tokens).astype(np.int64)[np.unique(part.groups)],
        micro_batches=1,
        window_tokens=float(tokens.sum()),
    )
    local = replace(part, groups=np.unique(part.groups, return_inverse=True)[1])
    return original(aggregation, local, own, counts) / whole.micro_batches


@mutation
def token_means_of_parts(original: Fn, aggregation: Any, *rest: Any) -> Any:
    """Use the token mean of the micro-batch for every aggregation."""
    return original("micro-batch" if aggregation else aggregation, *rest)
