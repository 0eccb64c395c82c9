"""Loss, row losses and gradient of a recorded step against the definition, piece by piece."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gates.families.loss import textbook, textbook_steps
from gates.families.loss.branches import on_a_branch
from gates.families.loss.program import row_of
from gates.model import Array, ConfigurationError
from gates.recorded.finding import Compared, Total
from gates.recorded.settings import Settings, of_loss
from gates.recorded.step import AT_ONCE, Piece, Step
from reference.oracle import losses, ratio

ARRAYS = ("policy", "old", "reference", "advantages", "weights")


@dataclass(slots=True)
class LossErrors:
    """How far a recorded loss is off.

    Attributes:
        loss: the loss; its limit is that of a sum in one go.
        rows: the row losses, or None where the file has none.
        gradient: the gradient, or None where the file has none.
        outside: the largest |gradient| where no token stands, with its place.
        poisoned: whether masked slots of the inputs hold what is not finite.
    """

    loss: Compared
    rows: Compared | None = None
    gradient: Compared | None = None
    outside: tuple[float, str] = (0.0, "")
    poisoned: bool = False

    @property
    def holds(self) -> bool:
        """Whether each of them is that of the definition."""
        compared = (one for one in (self.loss, self.rows, self.gradient) if one is not None)
        return all(one.holds for one in compared) and self.outside[0] == 0.0


def compare(step: Step, settings: Settings, *, most: int | None = None, at_once: int = AT_ONCE) -> LossErrors:
    """Compare what the file holds with the loss of these settings.

    Of more than `most` pieces, which have at most `at_once` slots, the others and the loss itself are left out.

    Raises:
        ConfigurationError: settings and arrays do not fit.
    """
    file, dtype = step.file, dtype_of(step)
    found = LossErrors(
        Compared("loss"),
        Compared("row loss") if "row_losses" in file else None,
        Compared("gradient") if "gradient" in file else None,
    )
    total, slack = Total(dtype), 0.0
    for count, (piece, keywords, factor) in enumerate(_parts(step, settings, at_once)):
        if count == most:
            return found
        inputs = {**inputs_of(step, piece, settings), **keywords}
        wanted, limits = _times(*definition(step, inputs, settings), factor)
        found.poisoned |= _poisoned(inputs)
        total.add(wanted.loss, float(limits["loss"]), int(piece.mask.sum()))
        slack += wanted.branch_slack
        if found.rows is not None:
            got, limit = file.read("row_losses", piece.start, piece.stop), limits["loss"] + wanted.branch_slack
            found.rows.add(got, np.asarray([wanted.loss]), limit, piece.start)
        if found.gradient is not None:
            _add_gradient(found, file.read("gradient", piece.start, piece.stop), piece, wanted, limits)
    got_loss = file.number("loss")
    off = got_loss - total.value
    near = got_loss - float(np.copysign(min(abs(off), slack), off)) if np.isfinite(off) else got_loss
    found.loss.add(np.asarray(near), np.asarray(total.value), np.asarray(total.limit))
    return found


def _times(
    wanted: losses.PolicyLoss, limits: Mapping[str, Array], factor: float
) -> tuple[losses.PolicyLoss, Mapping[str, Array]]:
    """Return what rows add to the loss of the step."""
    if factor == 1.0:
        return wanted, limits
    scaled = ("loss", "gradient", "gradient_other", "branch_slack")
    found = replace(wanted, **{name: factor * getattr(wanted, name) for name in scaled})
    return found, {name: factor * limit for name, limit in limits.items()}


def _add_gradient(found: LossErrors, wide: Array, piece: Piece, wanted: losses.PolicyLoss, limits: Any) -> None:
    assert found.gradient is not None
    width = piece.mask.shape[1]
    _, moved = on_a_branch(wanted, wanted.loss, wide[:, :width])
    found.gradient.add(np.where(piece.mask, moved, 0.0), wanted.gradient, limits["gradient"], piece.start)
    outside = np.abs(np.asarray(wide, np.float64))
    outside[:, :width][piece.mask] = 0.0
    outside = np.where(np.isnan(outside), np.inf, outside)
    if float(outside.max()) > found.outside[0]:
        row, slot = (int(i) for i in np.unravel_index(int(outside.argmax()), outside.shape))
        found.outside = (float(outside.max()), f"at [{piece.start + row}, {slot}]: got {wide[row, slot]:.9g}, want 0")


def _poisoned(inputs: Mapping[str, Any]) -> bool:
    return any(inputs[name] is not None and not np.isfinite(inputs[name]).all() for name in ARRAYS)


def dtype_of(step: Step) -> str:
    """Return the dtype of the log-probs."""
    return {"F32": "float32", "F64": "float64"}[step.file.dtypes["policy"]]


def inputs_of(step: Step, piece: Piece, settings: Settings) -> dict[str, Any]:
    """Return the keywords of `policy_loss` for some rows, and `sampling` where weights are to be made of it."""
    found = {**step.given(ARRAYS, piece), "mask": piece.mask, **of_loss(settings, step.group_size)}
    if corrected(settings, step):
        found["sampling"] = step.slots("sampling", piece)
    if row_of(settings).by_row:
        for name in ("advantages", "weights"):
            found[name] = by_row(step, name, found[name], piece)
    return found


def by_row(step: Step, name: str, values: Any, piece: Piece) -> Any:
    """Return (rows,) of an array whose tokens all have the number of their row; others as they are.

    Raises:
        ConfigurationError: the tokens of a row differ.
    """
    if values is None or values.ndim == 1:
        return values
    first = values[np.arange(len(values)), piece.mask.argmax(axis=1)]
    first = np.where(piece.mask.any(axis=1), first, 0.0).astype(values.dtype)
    differ = piece.mask & (values != first[:, None])
    if differ.any():
        row, slot = (int(i) for i in np.argwhere(differ)[0])
        raise ConfigurationError(
            f"{step.file.path}: tensor `{name}` is {values[row, slot]:g} at [{piece.start + row}, {slot}] and {first[row]:g} "
            "before, must be one number a row for this algorithm: write (B,), or another `algorithm`"
        )
    return first


def corrected(settings: Settings, step: Step) -> bool:
    """Return whether the off-policy weights are to be made of `sampling`."""
    return settings.get("correction") is not None and "weights" not in step.file


def definition(
    step: Step, inputs: Mapping[str, Any], settings: Settings
) -> tuple[losses.PolicyLoss, Mapping[str, Array]]:
    """Return the loss of some rows, and its textbook limits.

    Raises:
        ConfigurationError: settings and arrays do not fit; the oracle's sentence says how.
    """
    given = dict(inputs)
    try:
        if corrected(settings, step):
            given["sampling"], given["weights"] = inputs["sampling"], off_policy(inputs, settings)
        arguments = {name: value for name, value in given.items() if name != "sampling"}
        wanted = losses.policy_loss(**arguments)
    except ValueError as error:
        raise ConfigurationError(f"{step.file.path}: {error}") from None
    given["kl_ratio"] = given["kl_ratio"] or "none"
    if corrected(settings, step):
        names = ("correction", "correction_level", "correction_low", "correction_high")
        more: dict[str, Any] = {name: settings.get(name) for name in names}
        arguments = {name: value for name, value in given.items() if name != "weights"}
        return wanted, textbook_steps.loss_constants(**arguments, **more)
    return wanted, textbook.policy_loss(**given)


def off_policy(inputs: Mapping[str, Any], settings: Settings) -> Array:
    """Return the off-policy weights of the correction that the settings name."""
    old = inputs["policy"] if inputs["old"] is None else inputs["old"]
    return ratio.importance_weights(
        old,
        inputs["sampling"],
        inputs["mask"],
        correction=settings["correction"],
        level=settings["correction_level"],
        c_min=settings.get("correction_low"),
        c_max=settings["correction_high"],
    )


def _parts(step: Step, settings: Settings, at_once: int) -> Iterator[tuple[Piece, dict[str, Any], float]]:
    """Yield pieces, the keywords that are other than the step's, and what the piece's loss weighs in the step's.

    A step that fits into one piece is computed as it stands. Else each piece divides by the counts of the whole step: a
    mean over rows is weighed, and a mean over tokens is the `trl` denominator with the tokens that are divided by.
    """
    rows = step.file.rows
    alone = "row_losses" in step.file
    if rows == 1 or (step.slots_read <= at_once and not alone):
        yield step.piece(0, rows, cut=row_of(settings).aggregation != "width"), {}, 1.0
        return
    if not row_of(settings).by_tokens:
        # a piece is cut to its longest row, the width of the step is not
        width = {"aggregation": "constant", "max_length": step.file.width}
        keywords = width if row_of(settings).aggregation == "width" else {}
        for piece in _rows(step, 0, rows, 0 if alone else at_once):
            yield piece, keywords, (piece.stop - piece.start) / rows
        return
    without = {"micro_batches": None, "group_size": None, "aggregation": "token-mean"}
    for (start, stop), divisor in _blocks(step, settings).items():
        keywords = {**without, "dapo_denominator": "trl", "tokens_in_step": divisor}
        for piece in _rows(step, start, stop, 0 if alone else at_once):
            yield piece, keywords, 1.0


def _rows(step: Step, start: int, stop: int, at_once: int) -> Iterator[Piece]:
    """Yield rows in pieces, or one by one where `at_once` is 0."""
    if at_once:
        yield from step.pieces(start, stop, at_once=at_once)
        return
    for row in range(start, stop):
        yield step.piece(row, row + 1)


def _blocks(step: Step, settings: Settings) -> dict[tuple[int, int], float]:
    """Return the rows whose tokens are averaged together, with the number that their tokens' terms are divided by."""
    rows, denominator = step.file.rows, settings.get("dapo_denominator")
    if row_of(settings).aggregation == "micro-batch":
        sizes = list(settings["micro_batches"] or [])
    elif denominator == "group" and step.group_size:
        sizes = [step.group_size] * (rows // step.group_size)
    elif denominator == "trl":
        return {(0, rows): float(settings["tokens_in_step"] or 0.0)}
    else:
        sizes = [rows]
    if not sizes or sum(sizes) != rows or min(sizes) < 1:
        raise ConfigurationError(
            f"{step.file.path}: setting `micro_batches` or `group_size` gives blocks of {sizes} rows, must add up to {rows}"
        )
    ends = np.cumsum(sizes)
    tokens = [int(step.lengths[end - size : end].sum()) for size, end in zip(sizes, ends, strict=True)]
    return {
        (int(end) - size, int(end)): float(len(sizes) * max(count, 1))
        for size, end, count in zip(sizes, ends, tokens, strict=True)
    }
