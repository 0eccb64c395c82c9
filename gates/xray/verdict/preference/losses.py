"""The coefficients that preference losses and supervised training give."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from gates.diagnosis.search import evaluate
from gates.families.program import Choices, Program
from gates.families.programs import programs
from gates.model import Array
from gates.xray.verdict.inputs import Inputs, Measured, Parts
from gates.xray.verdict.preference.settings import ALONE
from gates_reference.oracle import preference as oracle

BETAS = tuple(
    sorted({float(f"{digits / 10.0 * 10.0**power:.2g}") for digits in range(10, 100) for power in range(-3, 2)})
)
STEPS = 12  # of Gauss and Newton for z0
STARTS = (0.0, 0.3, 1.0, 3.0)  # of z0, in units of 1/β
SMALL = 1e-4  # step of a derivative by z0, in units of 1/β
Settings = Mapping[str, Any]


@dataclass(frozen=True)
class Rows:
    """The rows of an update in the order of a definition.

    Attributes:
        inputs: log-probs and mask on the slots of whole rows.
        parts: the slots by what they are.
        numbers: of the rows in the update, from 1.
        batches: rows of each micro-batch.
        desirable: of KTO, (B,).
        mismatched: of KTO, log-ratios of completions under other prompts; None where they are not noted.
    """

    inputs: Inputs
    parts: Parts
    numbers: Array
    batches: tuple[Array, ...]
    desirable: Array | None = None
    mismatched: Array | None = None

    @property
    def attended(self) -> Array:
        """The slots of prompts and completions that have a log-prob."""
        return self.parts.prompt | self.parts.completion

    def with_mask(self, mask: Array) -> Rows:
        """Return the same with other slots that train."""
        return replace(self, inputs=self.inputs.with_mask(mask))

    def taken(self, order: Array) -> Rows:
        """Return the rows in another order."""
        inputs, parts = _inputs(self.inputs, order), _parts(self.parts, order)
        return replace(self, inputs=inputs, parts=parts, numbers=self.numbers[order])


def _inputs(inputs: Inputs, order: Array) -> Inputs:
    names = ("columns", "mask", "policy", "old", "reference", "sampling", "begins")
    arrays = {name: getattr(inputs, name) for name in names}
    return replace(inputs, **{name: array[order] for name, array in arrays.items() if array is not None})


def _parts(parts: Parts, order: Array) -> Parts:
    names = ("columns", "prompt", "completion", "closing", "after", "truncated")
    return Parts(*(getattr(parts, name)[order] for name in names))


@dataclass(frozen=True)
class Losses:
    """Compares definitions with the coefficients of an update.

    Attributes:
        measured: the coefficients.
        rows: in the order of the definition.
        rounded: whether the script computes in half precision.
    """

    measured: Measured
    rows: Rows
    rounded: bool = False

    def with_rows(self, rows: Rows) -> Losses:
        """Return the comparison on other rows or slots."""
        return replace(self, rows=rows)

    def options(self, settings: Settings) -> list[Settings]:
        """Return the definitions that settings ask for, one for each choice that they leave open."""
        name = settings["algorithm"]
        choices: dict[str, tuple[Any, ...]] = {}
        if name == "ipo":
            choices["lengths"] = ("mean", "sum")
        if name in {"orpo", "sft"}:
            choices["nll_tokens"] = ("completion", "all")
        if name == "sft":
            choices["aggregation"] = ("token-mean", "row-mean", "row-sum")
        elif settings.get("beta") is None:
            choices["beta"] = BETAS
        open_choices = {key: values for key, values in choices.items() if settings.get(key) is None}
        batched: tuple[bool, ...] = (False, True) if len(self.rows.batches) > 1 else (False,)
        if settings.get("aggregation") == "micro-batch":
            batched = (True,)
        return [
            {**settings, **dict(zip(open_choices, values, strict=True)), "batched": by_batch}
            for *values, by_batch in product(*open_choices.values(), batched)
        ]

    def fits(self, settings: Settings) -> list[tuple[Settings, float]]:
        """Return the definitions that give the coefficients, with their largest errors in limits.

        Means of micro-batches are tried where none of the whole step fits.
        """
        options = self.options(settings)
        for batched in (False, True):
            fitted = [each for option in options if option["batched"] == batched for each in self.anchored(option)]
            if fits := [(each, misfit) for each in fitted if (misfit := self.misfit(each)) <= 1.0]:
                return fits
        return []

    def misfit(self, settings: Settings) -> float:
        """Return the largest error of a definition in limits; inf where it contradicts the inputs."""
        wanted = self.of(settings)
        return float("inf") if wanted is None else self.measured.misfit(wanted)

    def of(self, settings: Settings) -> Array | None:
        """Return the coefficients of a definition; None where it contradicts the inputs."""
        return self.predicted(lambda rows, batch: self._gradient(settings, rows, batch), batched=settings["batched"])

    def edited(self, settings: Settings, changes: Choices) -> Array | None:
        """Return the coefficients of an edited definition."""
        program = self.program(settings)

        def gradient(rows: Array, batch: int) -> Array | None:
            call = self.call(settings, rows, batch)
            chosen = {**program.asked(call), **changes}
            call["attention_mask"] = self.rows.attended[rows]
            try:
                return np.asarray(evaluate(program, call, chosen)["gradient"][0], np.float64)
            except (KeyError, TypeError, ValueError):  # a choice that needs a constant which the call lacks
                return None

        return self.predicted(gradient, batched=settings["batched"])

    def program(self, settings: Settings) -> Program:
        """Return the program of a definition, whose edits are mistakes and other choices."""
        return programs()["kto_loss" if settings["algorithm"] == "kto" else "preference_loss"]

    def predicted(self, gradient: Callable[[Array, int], Array | None], *, batched: bool) -> Array | None:
        """Return a gradient of slots on the measured columns: of all rows, or the mean of those of micro-batches."""
        inputs = self.rows.inputs
        batches = self.rows.batches if batched else (np.arange(len(inputs.mask)),)
        total = np.zeros(inputs.mask.shape)
        for index, rows in enumerate(batches):
            part = gradient(rows, index)
            if part is None or not np.isfinite(part).all():
                return None
            total[rows] += part / len(batches)
        return self.measured.of(inputs.columns, total)

    def call(self, settings: Settings, rows: Array, batch: int) -> dict[str, Any]:
        """Return the keywords of the op for some rows, as the oracle and the program take them."""
        inputs, name = self.rows.inputs, settings["algorithm"]
        alone = name in ALONE or settings.get("reference_free") == "true"
        call: dict[str, Any] = {
            "policy": inputs.policy[rows],
            "reference": None if alone or inputs.reference is None else inputs.reference[rows],
            "mask": inputs.mask[rows],
            "beta": settings["beta"],
        }
        if name == "kto":
            assert self.rows.desirable is not None
            anchors = settings.get("z0", (0.0,))
            own = np.array([anchors[min(batch, len(anchors) - 1)]])
            return {
                **call,
                "reference": np.zeros_like(call["policy"]) if call["reference"] is None else call["reference"],
                "desirable": self.rows.desirable[rows],
                "mismatched": own if self.rows.mismatched is None else self.rows.mismatched,
                "desirable_weight": settings.get("desirable_weight", 1.0),
                "undesirable_weight": settings.get("undesirable_weight", 1.0),
            }
        return {
            **call,
            "loss": name,
            "label_smoothing": settings.get("label_smoothing", 0.0) if name == "dpo" else None,
            "lengths": settings["lengths"] if name == "ipo" else None,
            "penalty": settings["penalty"] if name == "dpop" else None,
            "margin": settings["margin"] if name == "simpo" else None,
            "nll": settings.get("nll", 1.0) if name == "cpo" else None,
            "attention_mask": self.rows.attended[rows] if settings.get("nll_tokens") == "all" else None,
        }

    def _gradient(self, settings: Settings, rows: Array, batch: int) -> Array | None:
        name = settings["algorithm"]
        if name == "sft":
            return self._supervised(settings, rows)
        call = self.call(settings, rows, batch)
        try:
            if name == "kto":
                return np.asarray(oracle.kto_loss(**call).gradient)
            if settings.get("lengths") and name != "ipo":
                program = self.program(settings)
                chosen = {**program.asked(call), "row": settings["lengths"]}
                gradient = np.asarray(evaluate(program, call, chosen)["gradient"][0], np.float64)
            else:
                gradient = np.asarray(oracle.preference_loss(**call).gradient)
        except ValueError:
            return None
        weight = settings.get("nll", 0.0) if name != "cpo" else 0.0
        return gradient + weight * self.likelihood(rows, "token-mean") if weight else gradient

    def likelihood(self, rows: Array, mean: str) -> Array:
        """Return the gradient of the likelihood of the chosen completions by a mean."""
        mask = self.rows.inputs.mask[rows] & (np.arange(len(rows)) % 2 == 0)[:, None]
        return _averaged(mask, mean, len(rows) // 2)

    def _supervised(self, settings: Settings, rows: Array) -> Array:
        mask = (
            self.rows.inputs.mask if settings.get("nll_tokens") != "all" else self.rows.inputs.mask | self.rows.attended
        )
        mean = "token-mean" if settings["aggregation"] == "micro-batch" else settings["aggregation"]
        return _averaged(mask[rows], mean, len(rows))

    @property
    def level(self) -> bool:
        """Whether policy and reference are equal, so that log-ratios are 0."""
        return self.rows.inputs.reference is not None and not self.rows.inputs.apart

    def anchored(self, settings: Settings) -> Iterator[Settings]:
        """Yield a definition with its reference point z0, where that is not noted: 0, or as the coefficients have it."""
        if settings["algorithm"] != "kto" or self.rows.mismatched is not None:
            yield settings
            return
        nothing = {**settings, "z0": (0.0,)}
        yield nothing
        free = settings.get("reference_free") == "true"
        if (free or not self.level) and self.misfit(nothing) > 1.0:
            yield from ({**settings, "z0": anchor} for anchor in self._anchors(settings))

    def _anchors(self, settings: Settings) -> Iterator[tuple[float, ...]]:
        """Yield the reference points, one for each micro-batch, that come nearest."""
        unit = 1.0 / settings["beta"]
        count = len(self.rows.batches) if settings["batched"] else 1
        limits = self.measured.limits
        for start in STARTS:
            anchor = np.full(count, start * unit)
            for _ in range(STEPS):
                here = self.of({**settings, "z0": tuple(anchor)})
                if here is None:
                    break
                slopes = []
                for index in range(count):
                    moved = anchor.copy()
                    moved[index] += SMALL * unit
                    there = self.of({**settings, "z0": tuple(moved)})
                    slopes.append((here if there is None else there - here) / (SMALL * unit) / limits)
                step = np.linalg.lstsq(np.stack(slopes, axis=1), (self.measured.values - here) / limits, rcond=None)[0]
                anchor = np.maximum(0.0, anchor + np.clip(step, -2.0 * unit, 2.0 * unit))
                if np.abs(step).max() < 1e-9 * unit:
                    break
            if self.misfit({**settings, "z0": tuple(anchor)}) <= 1.0:
                yield tuple(float(value) for value in anchor)
                return


def _averaged(mask: Array, mean: str, rows: int) -> Array:
    """Return the gradient of −log π over the slots of a mask by a mean."""
    counts = np.maximum(mask.sum(axis=1, keepdims=True), 1)
    divisors = {"token-mean": max(int(mask.sum()), 1), "row-mean": rows * counts, "row-sum": rows}
    return np.asarray(-mask.astype(np.float64) / divisors[mean])
