"""Rows that are all pushed the same way: no baseline of their group is subtracted from their rewards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gates.model import Array
from gates.xray.reading.reading import Reading
from gates.xray.reading.words import plural

BECAUSE = (
    "what a baseline of the group leaves, its mean or the mean of the other rows, sums to 0 over the rows of a prompt"
)
UP = "rewards above 0 without a baseline, as in REINFORCE, push rows up, and so does a baseline below the rewards"
DOWN = (
    "a baseline above the rewards pushes rows down, such as a leave-one-out sum that holds the row's own reward too, "
    "and so do rewards below 0 without a baseline"
)
TELL = "gates_note(rewards=…) would tell"


def reading(weights: Array, groups: Sequence[Sequence[int]]) -> Reading | None:
    """Return that all rows of every prompt are pushed the same way.

    Args:
        weights: of the rows.
        groups: the rows of each prompt.
    """
    several = [weights[list(members)] for members in groups if len(members) > 1]
    signs = np.sign(np.concatenate(several)) if several else np.zeros(1)
    if not np.isfinite(signs).all() or abs(signs.sum()) < len(signs):
        return None
    way, causes = ("up", UP) if signs[0] < 0 else ("down", DOWN)
    many = (
        f"every row of each of {len(several)} prompts" if len(several) > 1 else f"each of {plural(len(signs), 'row')}"
    )
    sentence = f"{many} is pushed {way}: no baseline of the group (its mean, or the mean of the other rows) does that"
    numbers = {"one_way": way, "weights": [float(weight) for weight in weights]}
    return Reading("between rows", "read", sentence, BECAUSE, f"{causes}: {TELL}", numbers)


def on_balance(reading: Reading, ways: Sequence[Array], groups: Sequence[Sequence[int]]) -> Reading:
    """Return the reading of rows that do not sum to 0, and whether those of every prompt are pushed the same way on balance.

    Args:
        reading: to which it is added.
        ways: the weights of rows under each way to divide; all must agree.
        groups: the rows of each prompt.
    """
    several = [list(members) for members in groups if len(members) > 1]
    signs = {float(np.sign(values[members].sum())) for values in ways for members in several}
    if reading.numbers.get("fitting") or len(several) < 2 or signs not in ({1.0}, {-1.0}):
        return reading
    way, causes = ("up", UP) if -1.0 in signs else ("down", DOWN)
    sentence = f"{reading.sentence}: the rows of each of {len(several)} prompts are pushed {way} on balance"
    numbers = {**reading.numbers, "on_balance": way}
    return replace(reading, sentence=sentence, remedy=f"{causes}; {reading.remedy}", numbers=numbers)
