"""The masks of dropout in updates, which are drawn: how many elements they keep, and whether one is used twice."""

from __future__ import annotations

import math

import numpy as np

from gates.replay.measure import Measures
from gates.replay.run import Run
from gates.replay.trace import Update

KEPT = "share of elements that dropout keeps, in standard errors from its probability"
REPEATED = "masks of dropout that were used before"
QUANTITIES = (KEPT, REPEATED)
ELEMENTS = 64  # of a mask that is not drawn twice by chance


def compare(run: Run, update: Update, seen: set[bytes], found: Measures) -> None:
    """Compare the masks of an update with the probability of dropout and with all masks so far, which `seen` holds."""
    probability = 1.0 - run.trace.config["adapter"]["dropout"]
    kept = size = 0
    for number, masks in enumerate(update.masks):
        for name, mask in masks.items():
            kept, size = kept + int(mask.sum()), size + mask.size
            if mask.size < ELEMENTS:
                continue
            key = np.packbits(mask).tobytes()
            found.count(REPEATED, int(key in seen), f"{update.name}, micro-batch {number + 1}, {name}")
            seen.add(key)
    if size:
        error = math.sqrt(size * probability * (1.0 - probability))
        found.add(KEPT, abs(kept - size * probability) / error, f"{update.name}: {kept} of {size}")
