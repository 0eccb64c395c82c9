"""The coefficients that a definition gives, and how far the measured ones are from them.

The gradient of a policy loss is linear in the size of each row's advantage and in β, so the oracle is asked once for each
composition: with advantages of 1, of −1, and of 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import numpy as np

from gates.families.loss.program import row_of
from gates.model import Array
from gates.recorded.loss import off_policy
from gates.recorded.settings import of_loss
from gates.xray.verdict.definitions import ESTIMATORS, Definition, Facts, Settings
from gates.xray.verdict.inputs import Inputs, Measured
from gates.xray.verdict.ragged import from_begins
from gates.xray.verdict.rewards import Advantages
from gates_reference.oracle import losses

WHOLE = 1e-4  # relative distance from an integer at which a divisor is a length
LONGEST = 1e6
NATS = 4e-6  # of policy less old or reference: each is known to half of it, with logits up to 16 in float32
NEAR = 100.0  # limits
ROUNDING = 1e-12  # of the largest coefficient: what another order of a sum changes
SHORT = 3  # digits of a β that a script can have
BY_TOKEN = ("token", "none", "seq_mean_token")  # levels of a ratio at which a token's gradient has its advantage alone
OF_KL = ("beta", "kl_estimator", "kl_ratio", "kl_clamp", "kl_aggregation")
Branches = tuple[Array, Array]  # on either side of a bound


@dataclass
class Predictor:
    """The definitions of one set of inputs.

    Attributes:
        measured: the coefficients to compare with.
        inputs: log-probs and mask.
        facts: what else the recording says.
    """

    measured: Measured
    inputs: Inputs
    facts: Facts
    _kept: dict[tuple[tuple[tuple[str, Any], ...], float], Branches | None] = field(default_factory=dict)

    def call(self, definition: Definition) -> dict[str, Any]:
        """Return the keywords of `policy_loss`."""
        values = definition.advantages.values
        return self._call(definition.settings, values if values.ndim == 1 else self._wide(values))

    def of(self, definition: Definition) -> Branches | None:
        """Return the coefficients of a definition, on both branches of a bound; None where it contradicts the inputs."""
        settings, values = definition.settings, self._wide(definition.advantages.values)
        if values.shape[1] > 1 and definition.row.ratio_level not in BY_TOKEN:
            return None
        plain = {name: value for name, value in settings.items() if name not in OF_KL}
        up, down = self._gradient(plain, 1.0), self._gradient(plain, -1.0)
        if up is None or down is None:
            return None
        size, rises = np.abs(values), values > 0.0
        sides = [size * np.where(rises, a, b) for a, b in zip(up, down, strict=True)]
        if settings.get("beta"):
            penalty = self._gradient({**settings, "beta": 1.0}, 0.0)
            if penalty is None:
                return None
            sides = [side + settings["beta"] * penalty[0] for side in sides]
        first, second = (self.measured.of(self.inputs.columns, side) for side in sides)
        return first, second

    def _wide(self, values: Array) -> Array:
        """Return advantages of rows as (B, 1), those of tokens on the slots, (B, T)."""
        if values.ndim == 1:
            return values[:, None]
        return from_begins(values, self.inputs.begins, self.inputs.mask.shape[1])

    def misfit(self, definition: Definition) -> float:
        """Return the largest error of a definition in limits; inf where it contradicts the inputs.

        Where it is near, a definition has room for what log-probs in float32 do not tell.
        """
        wanted = self.of(definition)
        misfit = math.inf if wanted is None else self.measured.misfit(*wanted)
        if wanted is None or not 1.0 < misfit <= NEAR:
            return misfit
        moved = replace(self.inputs, policy=self.inputs.policy + NATS * self.inputs.mask)
        shifted = Predictor(self.measured, moved, self.facts).of(definition)
        if shifted is None:
            return misfit
        room = np.min([np.abs(a - b) for a, b in zip(shifted, wanted, strict=True)], axis=0)
        return self.measured.misfit(*wanted, room=room)

    def near(self, settings: Settings, advantages: Sequence[Advantages]) -> Sequence[Advantages]:
        """Return the advantages with which a loss may give the coefficients: all at once, `misfit` decides on those near.

        A gradient is linear in the sizes of advantages, so that of each row is added up on the columns only once.
        """
        if len(advantages) < 2 or any(each.values.ndim > 1 for each in advantages):
            return advantages
        plain = {name: value for name, value in settings.items() if name not in OF_KL}
        up, down = self._gradient(plain, 1.0), self._gradient(plain, -1.0)
        penalty = self._gradient({**settings, "beta": 1.0}, 0.0) if settings.get("beta") else None
        if up is None or down is None or (settings.get("beta") and penalty is None):
            return []
        table = np.array([each.values for each in advantages])
        sizes = np.abs(table)
        parts = sizes * (table > 0.0), sizes * (table <= 0.0)
        added = 0.0 if penalty is None else settings["beta"] * self._by_row(penalty[0]).sum(axis=0)
        sides = [parts[0] @ self._by_row(a) + parts[1] @ self._by_row(b) + added for a, b in zip(up, down, strict=True)]
        if not np.isfinite(sides).all():
            return advantages
        values = self.measured.values
        off = np.minimum(*(np.abs(values - side) for side in sides))
        largest = np.maximum(np.abs(values).max(initial=0.0), np.abs(sides).max(axis=(0, 2), initial=0.0))
        close = (off <= NEAR * self.measured.limits + ROUNDING * largest[:, None]).all(axis=1)
        return [each for each, kept in zip(advantages, close, strict=True) if kept]

    def _by_row(self, gradient: Array) -> Array:
        """Return what each row's part of a gradient gives for each measured column, (B, columns)."""
        columns, total = self.inputs.columns, self.measured.total
        shown = columns >= 0
        at = np.nonzero(shown)[0] * total + columns[shown]
        by_row = np.bincount(at, gradient[shown], len(columns) * total).reshape(len(columns), total)
        return np.asarray(by_row[:, self.measured.columns])

    def fitted(self, definition: Definition, *, penalties: bool) -> Iterator[Definition]:
        """Yield a definition with its free constants as the coefficients have them: L_max, and β with its estimator."""
        settings = definition.settings
        if definition.row.aggregation == "constant" and settings.get("max_length") is None:
            length = self._length(definition)
            if not length:
                return
            definition = replace(definition, settings={**settings, "max_length": length})
        if not penalties:
            yield definition
        elif "beta" not in settings and self.facts.apart and definition.row.kl_in_loss:
            yield from self._with_penalty(definition)

    def _length(self, definition: Definition) -> int:
        wanted = self.of(definition)
        factor = math.nan if wanted is None else self.measured.factor(wanted[0])
        divisor = 1.0 / factor if factor else math.nan
        length = round(divisor) if 0.5 < divisor < LONGEST else 0
        return length if abs(divisor - length) <= WHOLE * length else 0

    def _with_penalty(self, definition: Definition) -> Iterator[Definition]:
        plain = self.of(definition)
        if plain is None:
            return
        kept = plain[0] == plain[1]
        left = replace(
            self.measured,
            columns=self.measured.columns[kept],
            values=(self.measured.values - plain[0])[kept],
            limits=self.measured.limits[kept],
        )
        for estimator, ratio in product(ESTIMATORS, ("none", "token")):
            more = {"beta": 1.0, "kl_estimator": estimator, "kl_ratio": ratio}
            gradient = self._gradient({**definition.settings, **more}, 0.0)
            if gradient is None:
                continue
            penalty = self.measured.of(self.inputs.columns, gradient[0])
            beta = left.factor(penalty[kept])
            short = float(f"{beta:.{SHORT}g}") if math.isfinite(beta) else 0.0
            if short > 0.0:
                yield replace(definition, settings={**definition.settings, **more, "beta": short})

    def _gradient(self, settings: Settings, advantage: float) -> Branches | None:
        key = (
            tuple((name, tuple(value) if isinstance(value, list) else value) for name, value in settings.items()),
            advantage,
        )
        if key not in self._kept:
            values = np.full(len(self.inputs.mask), advantage)
            try:
                wanted = losses.policy_loss(**self._call(settings, values), branch_dtype="float32")
                self._kept[key] = (wanted.gradient, wanted.gradient_other)
            except ValueError:
                self._kept[key] = None
        return self._kept[key]

    def _call(self, settings: Settings, advantages: Array) -> dict[str, Any]:
        arrays: Mapping[str, Any] = self.inputs.keywords
        if settings.get("ratio") == "on-policy":
            arrays = {**arrays, "old": self.inputs.policy}
        if settings.get("correction") and self.inputs.sampling is not None:
            arrays = {**arrays, "weights": off_policy({**arrays, "sampling": self.inputs.sampling}, settings)}
        constants = of_loss(settings, self.facts.group_size)
        if constants["max_length"] is None and "constant" in {
            constants.get("aggregation"),
            row_of(settings).aggregation,
        }:
            constants["max_length"] = 1
        return {**arrays, "advantages": advantages, **constants}
