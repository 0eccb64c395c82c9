"""Compare loss, row losses and gradient of a recorded step with the definition, piece by piece."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gates.arithmetic.number import FACTOR, UNIT
from gates.families.loss import textbook, textbook_steps
from gates.families.loss.branches import on_a_branch
from gates.families.loss.program import row_of
from gates.model import Array, ConfigurationError
from gates.recorded.extras import Extras
from gates.recorded.finding import Compared, Total
from gates.recorded.settings import Settings, of_loss
from gates.recorded.step import AT_ONCE, Piece, Step
from gates_reference.oracle import losses, ratio

ROUGH = 0.05  # of the terms of a gradient: far beyond its limits, where the clip is decided
ROUGH_LOSS = 0.01  # of the sum of |terms| of a loss
FEW = 0.1  # share of elements at which it may be undecided
ARRAYS = ("policy", "old", "reference", "advantages", "weights")


@dataclass(slots=True)
class LossErrors:
    """The errors of a recorded loss.

    Attributes:
        loss: the loss; its limit is that of a single sum.
        rows: the row losses, or None if the file has none.
        gradient: the gradient, or None if the file has none.
        outside: the largest |gradient| of a masked slot, and its location.
        off: the loss less that of the definition.
        poisoned: whether masked slots of the inputs hold numbers that are not finite.
    """

    loss: Compared
    rows: Compared | None = None
    gradient: Compared | None = None
    outside: tuple[float, str] = (0.0, "")
    off: float = 0.0
    poisoned: bool = False

    @property
    def compared(self) -> list[Compared]:
        """The comparisons of the arrays that the file has."""
        return [array for array in (self.loss, self.rows, self.gradient) if array is not None]

    @property
    def holds(self) -> bool:
        """Whether every array is that of the definition."""
        return all(array.holds for array in self.compared) and self.outside[0] == 0.0


def compare(step: Step, settings: Settings, *, most: int | None = None, at_once: int = AT_ONCE) -> LossErrors:
    """Compare the recorded arrays with the loss of these settings.

    Pieces have at most `at_once` slots. With `most`, only that many pieces are compared, without the loss itself.

    Raises:
        ConfigurationError: settings and arrays contradict each other.
    """
    file, dtype = step.file, dtype_of(step)
    errors = LossErrors(
        Compared("loss"),
        Compared("row loss") if "row_losses" in file else None,
        Compared("gradient") if "gradient" in file else None,
    )
    total, slack, extras = Total(dtype), 0.0, Extras(step, settings)
    for count, (piece, keywords, factor) in enumerate(_parts(step, settings, at_once)):
        if count == most:
            return errors
        inputs = {**inputs_of(step, piece, settings), **keywords}
        extras.add(piece, inputs, factor)
        wanted, limits = _of_piece(step, piece, inputs, settings, factor)
        errors.poisoned |= _poisoned(inputs)
        total.add(wanted.loss, float(limits["loss"]), int(piece.mask.sum()))
        slack += wanted.branch_slack
        if errors.rows is not None:
            got, limit = file.read("row_losses", piece.start, piece.stop), limits["loss"] + wanted.branch_slack
            errors.rows.add(got, np.asarray([wanted.loss]), limit, piece.start)
        if errors.gradient is not None:
            _add_gradient(errors, file.read("gradient", piece.start, piece.stop), piece, wanted, limits)
    extra, room = extras.total()
    total.value, total.limit = total.value + extra, total.limit + room
    got_loss = file.number("loss")
    errors.off = off = got_loss - total.value
    near = got_loss - float(np.copysign(min(abs(off), slack), off)) if np.isfinite(off) else got_loss
    errors.loss.add(np.asarray(near), np.asarray(total.value), np.asarray(total.limit))
    return errors


def plausible(step: Step, settings: Settings, *, at_once: int) -> bool:
    """Return whether the first piece's gradient, or the loss of a step of one piece, is at all near these settings'.

    Errors are compared with the size of the terms, without limits, which are far smaller.

    Raises:
        ConfigurationError: settings and arrays contradict each other.
    """
    parts = _parts(step, settings, at_once)
    piece, keywords, factor = next(parts)
    wanted = _oracle(step, {**inputs_of(step, piece, settings), **keywords}, settings)[0]
    if "gradient" in step.file:
        got = step.file.read("gradient", piece.start, piece.stop)[:, : piece.mask.shape[1]] / factor
        off = np.abs(on_a_branch(wanted, wanted.loss, got)[1] - wanted.gradient) > ROUGH * wanted.gradient_scale
        return bool((off & piece.mask).sum() <= FEW * piece.mask.sum())
    if next(parts, None) is not None:
        return True
    off_loss = abs(step.file.number("loss") - factor * wanted.loss)
    return not off_loss > factor * (ROUGH_LOSS * wanted.loss_scale + wanted.branch_slack)


def divisor(step: Step, settings: Settings, *, at_once: int) -> float:
    """Return by what the first piece's gradient of these settings would have to be divided to be the recorded one.

    Raises:
        ConfigurationError: settings and arrays contradict each other.
    """
    piece, keywords, factor = next(_parts(step, settings, at_once))
    wanted = factor * _oracle(step, {**inputs_of(step, piece, settings), **keywords}, settings)[0].gradient
    got = step.file.read("gradient", piece.start, piece.stop)[:, : piece.mask.shape[1]]
    large = np.abs(wanted) > 0.5 * np.abs(wanted).max(initial=0.0)
    with np.errstate(all="ignore"):
        return float(np.median(wanted[large] / got[large])) if large.any() else float("nan")


def _of_piece(
    step: Step, piece: Piece, inputs: Mapping[str, Any], settings: Settings, factor: float
) -> tuple[losses.PolicyLoss, Mapping[str, Array]]:
    """Return loss and limits of some rows as their share of the step's; a KL with its own mean is added to the rest."""
    if not _averaged_apart(step, piece, settings, factor):
        return _times(*definition(step, inputs, settings), factor)
    own = {**settings, "aggregation": settings["kl_aggregation"], "dapo_denominator": "global"}
    share = left_out(step, own)
    keywords = {"aggregation": own["aggregation"], "dapo_denominator": "trl", "tokens_in_step": float(step.tokens)}
    if own["aggregation"] != "token-mean":
        share *= (piece.stop - piece.start) / step.file.rows
    without = dict.fromkeys(("max_length", "micro_batches", "group_size", "kl_aggregation"))
    of_kl = {**inputs, **without, **keywords, "advantages": np.zeros_like(inputs["advantages"])}
    term, room = _times(*definition(step, {**inputs, "beta": 0.0, "kl_aggregation": None}, settings), factor)
    kl, room_of_kl = _times(*definition(step, of_kl, own), share)
    both = replace(
        term,
        loss=term.loss + kl.loss,
        gradient=term.gradient + kl.gradient,
        gradient_other=term.gradient_other + kl.gradient,
    )
    added = {name: 2.0 * FACTOR * UNIT[dtype_of(step)] * np.abs(getattr(both, name)) for name in ("loss", "gradient")}
    return both, {name: room[name] + room_of_kl[name] + added[name] for name in added}


def _averaged_apart(step: Step, piece: Piece, settings: Settings, factor: float) -> bool:
    """Whether the KL of some rows has another share in the step's loss than the rest."""
    if not settings.get("kl_aggregation") or not settings.get("beta"):
        return False
    return piece.stop - piece.start < step.file.rows or factor != 1.0


def _times(
    wanted: losses.PolicyLoss, limits: Mapping[str, Array], factor: float
) -> tuple[losses.PolicyLoss, Mapping[str, Array]]:
    """Return loss and limits of some rows, multiplied by their share of the step's loss."""
    if factor == 1.0:
        return wanted, limits
    scaled = ("loss", "gradient", "gradient_other", "branch_slack")
    scaled_loss = replace(wanted, **{name: factor * getattr(wanted, name) for name in scaled})
    return scaled_loss, {name: factor * limit for name, limit in limits.items()}


def _add_gradient(errors: LossErrors, wide: Array, piece: Piece, wanted: losses.PolicyLoss, limits: Any) -> None:
    assert errors.gradient is not None
    width = piece.mask.shape[1]
    _, moved = on_a_branch(wanted, wanted.loss, wide[:, :width])
    errors.gradient.add(np.where(piece.mask, moved, 0.0), wanted.gradient, limits["gradient"], piece.start)
    outside = np.abs(np.asarray(wide, np.float64))
    outside[:, :width][piece.mask] = 0.0
    outside = np.where(np.isnan(outside), np.inf, outside)
    if float(outside.max()) > errors.outside[0]:
        row, slot = (int(i) for i in np.unravel_index(int(outside.argmax()), outside.shape))
        errors.outside = (float(outside.max()), f"at [{piece.start + row}, {slot}]: got {wide[row, slot]:.9g}, want 0")


def _poisoned(inputs: Mapping[str, Any]) -> bool:
    return any(inputs[name] is not None and not np.isfinite(inputs[name]).all() for name in ARRAYS)


def dtype_of(step: Step) -> str:
    """Return the dtype of the log-probs."""
    return {"F32": "float32", "F64": "float64"}[step.file.dtypes["policy"]]


def inputs_of(step: Step, piece: Piece, settings: Settings) -> dict[str, Any]:
    """Return the keywords of `policy_loss` for some rows, and `sampling` if the weights are computed from it."""
    inputs = {**step.arrays(ARRAYS, piece), "mask": piece.mask, **of_loss(settings, step.group_size)}
    if corrected(settings, step):
        inputs["sampling"] = step.slots("sampling", piece)
    if row_of(settings).by_row:
        for name in ("advantages", "weights"):
            inputs[name] = by_row(step, name, inputs[name], piece)
    return inputs


def by_row(step: Step, name: str, values: Any, piece: Piece) -> Any:
    """Return an array as (rows,), whose tokens all must have the number of their row.

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
    """Return whether the off-policy weights are computed from `sampling`."""
    return settings.get("correction") is not None and "weights" not in step.file


def definition(
    step: Step, inputs: Mapping[str, Any], settings: Settings
) -> tuple[losses.PolicyLoss, Mapping[str, Array]]:
    """Return the loss of some rows and its textbook limits.

    Raises:
        ConfigurationError: settings and arrays contradict each other; the message is the oracle's.
    """
    wanted, keywords = _oracle(step, inputs, settings)
    keywords["kl_ratio"] = keywords["kl_ratio"] or "none"
    if corrected(settings, step):
        names = ("correction", "correction_level", "correction_low", "correction_high")
        more: dict[str, Any] = {name: settings.get(name) for name in names}
        arguments = {name: value for name, value in keywords.items() if name != "weights"}
        return wanted, textbook_steps.loss_constants(**arguments, **more)
    return wanted, textbook.policy_loss(**keywords)


def _oracle(step: Step, inputs: Mapping[str, Any], settings: Settings) -> tuple[losses.PolicyLoss, dict[str, Any]]:
    """Return the loss of some rows, and its keywords with the off-policy weights."""
    keywords = dict(inputs)
    try:
        if corrected(settings, step):
            keywords["sampling"], keywords["weights"] = inputs["sampling"], off_policy(inputs, settings)
        arguments = {name: value for name, value in keywords.items() if name != "sampling"}
        return losses.policy_loss(**arguments), keywords
    except ValueError as error:
        raise ConfigurationError(f"{step.file.path}: {error}") from None


def off_policy(inputs: Mapping[str, Any], settings: Settings) -> Array:
    """Return the off-policy weights of the correction in the settings."""
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
    """Yield pieces, the keywords that differ from the step's, and the weight of the piece's loss in the step's.

    A step that fits into one piece is computed unchanged. Otherwise each piece divides by the counts of the whole step: a
    mean over rows is weighted, and a mean over tokens uses the `trl` denominator with the step's token count.
    """
    counted = left_out(step, settings)
    yield from ((piece, keywords, counted * share) for piece, keywords, share in _shares(step, settings, at_once))


def extras_of(step: Step, settings: Settings) -> Extras:
    """Return what the loss holds beside the policy loss."""
    extras = Extras(step, settings)
    for piece, keywords, factor in _parts(step, settings, AT_ONCE):
        extras.add(piece, {**inputs_of(step, piece, settings), **keywords}, factor)
    return extras


def left_out(step: Step, settings: Settings) -> float:
    """Return by what leaving out the rows, prompts or micro-batches without tokens multiplies a loss; else 1."""
    if settings.get("empty_rows") != "left-out":
        return 1.0
    if not row_of(settings).by_tokens:
        return step.file.rows / max(int(step.trained.sum()), 1)
    if settings.get("dapo_denominator") == "trl":
        return 1.0
    blocks = [bool(step.trained[start:stop].any()) for start, stop in _blocks(step, settings)]
    return len(blocks) / sum(blocks)


def _shares(step: Step, settings: Settings, at_once: int) -> Iterator[tuple[Piece, dict[str, Any], float]]:
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
    """Yield rows in pieces, or one by one if `at_once` is 0."""
    if at_once:
        yield from step.pieces(start, stop, at_once=at_once)
        return
    for row in range(start, stop):
        yield step.piece(row, row + 1)


def _blocks(step: Step, settings: Settings) -> dict[tuple[int, int], float]:
    """Return the divisor of each block of rows whose tokens are averaged together."""
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
