"""Diagnose a recorded loss, and count the mistakes that its step would reveal.

One step is one sample. A step with more slots than can be searched is represented by some of its rows and their gradient, up
to a common factor, since the denominators are those of the whole step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gates.diagnosis.diagnose import diagnose, diagnose_near
from gates.diagnosis.named import Diagnosis
from gates.diagnosis.search import APART, Candidate, Search, values
from gates.families.loss.program import row_of
from gates.families.program import Program, Sample
from gates.families.programs import programs
from gates.recorded.loss import corrected, extras_of, inputs_of, left_out, off_policy
from gates.recorded.settings import Settings
from gates.recorded.step import Piece, Step

SEARCHED = 4096  # slots: about 3 s for single edits
SHOWN = 1024  # slots: about 1 s for counting the mistakes
PAIRS = 1024  # slots: with more, pairs of edits take minutes


def named(step: Step, settings: Settings, row: int) -> Diagnosis | None:
    """Return a diagnosis of loss and gradient, or None if the step is too large; `row` is a row that differs."""
    part = _part(step, settings, row)
    if part is None:
        return None
    choices = part.program.asked(part.sample.inputs)
    if part.whole:
        return diagnose(part.program, [part.sample], pairs=part.slots <= PAIRS)
    diagnosis = diagnose(part.program, [part.sample], choices, pairs=False)
    if diagnosis.kind == "scaled" and not diagnosis.words.startswith("what is asked"):
        return replace(diagnosis, kind="mistake", words=diagnosis.words.partition(", times ")[0])
    return diagnosis


def near(step: Step, settings: Settings, row: int) -> Diagnosis | None:
    """Return a diagnosis by edits whose loss is near the recorded one, or None: a search of many settings."""
    part = _part(step, settings, row)
    return None if part is None else diagnose_near(part.program, [part.sample])


@dataclass(frozen=True, slots=True)
class _Part:
    """A step, or some of its rows, as one sample.

    Attributes:
        program: the definition, with the outputs that the file has.
        sample: the call and its outputs.
        slots: the number of slots.
        whole: whether it is the whole step.
    """

    program: Program
    sample: Sample
    slots: int
    whole: bool


def _part(step: Step, settings: Settings, row: int) -> _Part | None:
    whole = step.file.rows * step.file.width <= SEARCHED
    if not whole and "gradient" not in step.file:
        return None
    piece = _around(step, row, SEARCHED)
    inputs = _inputs(step, piece, settings)
    program = _program(loss=whole, gradient="gradient" in step.file)
    got: dict[str, Any] = {}
    counted = left_out(step, settings)
    if "gradient" in step.file:
        wide = step.file.read("gradient", piece.start, piece.stop)[:, : piece.mask.shape[1]]
        got["gradient"] = np.asarray(wide, np.float64) / (counted if whole else counted * _share(step, piece, settings))
    if whole:
        got["loss"] = np.asarray((step.file.number("loss") - extras_of(step, settings).total()[0]) / counted)
    else:  # the rows' own loss is unknown, so it must exclude no candidate
        got["loss"] = values(program, inputs, program.asked(inputs))["loss"]
    return _Part(program, Sample(inputs, got), piece.mask.size, whole)


def shown(step: Step, settings: Settings) -> str:
    """Return how many variants of the loss this step would reveal, and the first ones that it would not."""
    piece = _around(step, 0, SHOWN)
    if piece.stop - piece.start < step.file.rows and "gradient" not in step.file:
        return ""
    program = _program(loss=True, gradient="gradient" in step.file)
    inputs = _inputs(step, piece, settings)
    blank: Mapping[str, Any] = dict.fromkeys(program.outputs, np.zeros(()))
    search = Search(program, [Sample(inputs, blank)], program.asked(inputs))
    base = {name: value for name, (value, _) in search.evaluated(Candidate(), 0).items()}
    search.samples = [Sample(inputs, base)]
    singles = list(search.singles())
    hidden = [candidate for candidate in singles if search.distance(candidate, enough=APART) < APART]
    count = f"{len(singles) - len(hidden)} of {len(singles)} other ways to compute it would have been seen"
    if not hidden:
        return count
    more = f" and {len(hidden) - 2} more" if len(hidden) > 2 else ""
    return f"{count}, not {' or '.join(f'“{candidate.words}”' for candidate in hidden[:2])}{more}"


def _program(*, loss: bool, gradient: bool) -> Program:
    """Return the definition of the loss, restricted to the outputs that the file has.

    Pairs of edits are compared with a gradient only: one of thousands would give any single number.
    """
    program = programs()["policy_loss"]
    if gradient:
        return replace(program, outputs=("loss", "gradient") if loss else ("gradient",))
    return replace(
        program,
        outputs=("loss",),
        variable="",
        pairs=False,
        compute=lambda data, chosen, _: program.compute(data, chosen, data.lift(data["policy"])),
    )


def _around(step: Step, row: int, most: int) -> Piece:
    """Return all rows, or a piece of at most `most` slots around `row`, in whole prompts if these are known.

    Rows keep their padding, since a mistake may count it, unless a single row is too wide.
    """
    rows, width, size = step.file.rows, step.file.width, step.group_size or 1
    if rows * width <= most:
        return step.piece(0, rows, cut=False)
    fits = max(1, most // width // size) * size
    start = min(row, max(0, rows - fits)) // size * size
    return step.piece(start, min(start + fits, rows), cut=width > most)


def _inputs(step: Step, piece: Piece, settings: Settings) -> dict[str, Any]:
    """Return the keywords of the rows with all recorded constants, since each may be a denominator."""
    inputs = inputs_of(step, piece, settings)
    if corrected(settings, step):
        inputs["weights"] = off_policy(inputs, settings).astype(inputs["policy"].dtype)
    rows = piece.stop - piece.start
    inputs["group_size"] = step.group_size if step.group_size and rows % step.group_size == 0 else None
    if inputs["micro_batches"] and sum(inputs["micro_batches"]) != rows:
        inputs |= {"micro_batches": None, "aggregation": "token-mean", "dapo_denominator": "global"}
    return {name: value for name, value in inputs.items() if name != "sampling"}


def _share(step: Step, piece: Piece, settings: Settings) -> float:
    """Return what the rows' own loss weighs in the loss of the step, as the settings divide."""
    if row_of(settings).by_tokens:
        return float(step.lengths[piece.start : piece.stop].sum() / step.tokens)
    return (piece.stop - piece.start) / step.file.rows
