"""Judge an update whose note names a preference loss or supervised training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gates.model import Array
from gates.xray.reading.context import Context
from gates.xray.reading.words import number, plural, share
from gates.xray.verdict.inputs import inputs_of, measured, parts_of
from gates.xray.verdict.notes import Note
from gates.xray.verdict.preference import differs
from gates.xray.verdict.preference.losses import Losses, Rows, Settings
from gates.xray.verdict.preference.pairing import CHOSEN, Pairs, batches, pairs_of
from gates.xray.verdict.preference.settings import ALONE, named, parsed
from gates.xray.verdict.unexplained import unexplained
from gates.xray.verdict.unmatched import UnmatchedError
from gates.xray.verdict.verdict import Verdict

HALF = 1e-4  # of the gradient, rounded by one backward pass: float32 rounds 1e-7, bfloat16 some 1e-3
COARSE = 0.1  # limit of the typical coefficient, as a share of it, beyond which nothing is decided
QUANTITIES = {"kto": "kto_loss", "sft": "supervised_loss"}
IDS = "note `ids`, the tokens of each completion"
DESIRABLE = "note `desirable`, whether each row is"
Open = tuple[str, str]  # what is not judged, and the note that would have it judged
Z0 = "note `mismatched`, the log-ratios that z0 is the mean of, to have it judged"


def verdict(context: Context, note: Note) -> Verdict:
    """Return the verdict on the coefficients of an update.

    Raises:
        ConfigurationError: a setting is unknown, missing, or its value invalid.
        UnmatchedError: a note does not say what is needed.
    """
    settings = parsed(note.settings)
    note = note if len(note.kept) else _of_all_rows(context, note)
    losses, pairs = _losses(context, note, settings)
    quantity = quantity_of(note)
    if undecided := unexplained(context, quantity) or _undecided(quantity, settings, losses):
        return undecided
    fits = losses.fits(settings)
    if not fits:
        judged = _differs(context, note, quantity, losses, settings)
    else:
        left = _open(context, note, losses, settings, pairs, fits[0][0])
        judged = _correct(quantity, losses, settings, fits, left)
    return replace(judged, because=_because(losses))


def quantity_of(note: Note) -> str:
    """Return the name of what is judged."""
    name = str(named(note.settings))
    return QUANTITIES.get(name, f"preference_loss[{name}]")


def _of_all_rows(context: Context, note: Note) -> Note:
    """Return a note that has settings alone, on all rows of the update."""
    rows = context.step.rows
    return replace(
        note,
        kept=tuple(range(len(rows))),
        rows=np.arange(len(rows)),
        begins=[row.begin for row in rows],
        count=len(rows),
    )


def _losses(context: Context, note: Note, settings: Settings) -> tuple[Losses, Pairs | None]:
    """Return the comparison with the rows in the order of the definition."""
    parts = parts_of(context, note)
    inputs, known = inputs_of(context, note, parts), measured(context)
    numbers, rounded = np.array(note.kept) + 1, context.step.fit.rounding > HALF
    if settings["algorithm"] in {"kto", "sft"}:
        groups = batches(context, note, [[place] for place in range(len(note.kept))])
        desirable = _desirable(context, note) if settings["algorithm"] == "kto" else None
        return Losses(known, Rows(inputs, parts, numbers, groups, desirable, note.mismatched), rounded), None
    pairs = pairs_of(context, note)
    groups = tuple(np.stack([2 * pair, 2 * pair + 1], axis=1).ravel() for pair in batches(context, note, pairs.pairs))
    rows = Rows(inputs, parts, numbers, ()).taken(np.array(pairs.order))
    return Losses(known, replace(rows, batches=groups), rounded), pairs


def _desirable(context: Context, note: Note) -> Array:
    """Return which rows are desirable: as noted, else those that are pushed up."""
    if note.desirable is not None:
        return np.asarray(note.desirable[note.rows] > 0)
    weights = context.step.weights[list(note.kept)]
    if not (np.isfinite(weights) & (weights != 0.0)).all():
        reason = "a row is pushed neither up nor down, so whether it is desirable does not show"
        raise UnmatchedError(reason, DESIRABLE)
    return np.asarray(weights < 0.0)


def _undecided(quantity: str, settings: Settings, losses: Losses) -> Verdict | None:
    """Return why nothing can be decided, or None."""
    inputs = losses.rows.inputs
    if not inputs.mask.any():
        return Verdict(quantity, "cannot tell", "where completions begin is not known", remedy="note ids")
    alone = settings["algorithm"] in ALONE or settings.get("reference_free") == "true"
    if not alone and inputs.reference is None:
        remedy = "note `reference_log_probs`, or record a run whose reference is scored by a model"
        return Verdict(quantity, "cannot tell", "nobody scored a reference", remedy=remedy)
    if COARSE < losses.measured.relative < float("inf"):
        sentence = f"the coefficients are known to {share(losses.measured.relative)} only"
        return Verdict(quantity, "cannot tell", sentence, remedy="record the script in float32, with fewer tokens")
    return None


def _correct(
    quantity: str, losses: Losses, settings: Settings, fits: Sequence[tuple[Settings, float]], left: Sequence[Open]
) -> Verdict:
    """Return the verdict on coefficients that the definition gives, with what was read off and what does not show."""
    best, misfit = fits[0]
    count = plural(int(losses.rows.inputs.mask.sum()), "token")
    read_off = [_read_off(settings, each) for each, _ in fits]
    return Verdict(
        quantity,
        "correct",
        "; ".join([f"{count} within {number(misfit, 2)} of their precision", *(sentence for sentence, _ in left)]),
        " or ".join(dict.fromkeys(text for text in read_off if text)),
        remedy="; ".join(remedy for _, remedy in left if remedy),
        numbers={"misfit": misfit, "settings": {name: value for name, value in best.items() if value is not None}},
    )


def _open(
    context: Context, note: Note, losses: Losses, settings: Settings, pairs: Pairs | None, fitted: Settings
) -> list[Open]:
    """Return what is not judged in an update that its definition gives."""
    left: list[Open] = []
    if _begins_read_off(context, note):
        left.append(("where completions begin is read off the coefficients", f"{IDS}, to have it judged"))
    if pairs is not None and not pairs.noted:
        left.append(("which row of a pair is chosen is read off the coefficients", f"{CHOSEN}, to have it judged"))
    if settings["algorithm"] == "kto" and note.desirable is None:
        left.append(("which rows are desirable is read off the coefficients", f"{DESIRABLE}, to have it judged"))
    if settings["algorithm"] not in ALONE and settings.get("reference_free") != "true" and losses.level:
        left.append(("here policy and reference are equal, so another β or form would be a common factor", ""))
    if "z0" in fitted and not losses.level:
        anchors = " and ".join(number(value, 3) for value in fitted["z0"])
        left.append((f"z0 {anchors} is read off the coefficients", Z0))
    return left


WORDS = {
    ("nll_tokens", "completion"): "the likelihood of completions",
    ("nll_tokens", "all"): "the likelihood of all tokens, prompts too",
    ("lengths", "mean"): "log-ratios averaged over tokens",
    ("lengths", "sum"): "log-ratios summed over tokens",
    ("aggregation", "token-mean"): "the mean over tokens",
    ("aggregation", "row-mean"): "the mean over rows of each row's mean",
    ("aggregation", "row-sum"): "the mean over rows of each row's sum",
}


def _read_off(settings: Settings, fitted: Settings) -> str:
    """Return in words what the settings leave open, as the coefficients have it."""
    parts = [text for (name, value), text in WORDS.items() if name not in settings and fitted.get(name) == value]
    if "beta" not in settings and "beta" in fitted:
        parts.append(f"β {fitted['beta']:g}")
    if fitted["batched"] and settings.get("aggregation") != "micro-batch":
        parts.append("averaged in each micro-batch")
    return ", ".join(parts)


def _differs(context: Context, note: Note, quantity: str, losses: Losses, settings: Settings) -> Verdict:
    """Return the verdict on coefficients that the definition does not give.

    Where the rows are unsure nothing is wrong, but what another definition gives is computed by that one.
    """
    error = differs.error(losses, settings)
    if _begins_read_off(context, note):
        computed = differs.verdict(quantity, losses, settings, error)
        if (
            computed.status != "wrong" and computed.computes + computed.remedy
        ):  # another definition gives every coefficient
            return computed
        sentence = f"where completions begin is read off the coefficients; {error}"
        return Verdict(quantity, "cannot tell", sentence, remedy=IDS)
    if note.ambiguous or note.unsure:
        sentence = f"equal completions have different labels, and which is whose is not noted; {error}"
        return Verdict(quantity, "cannot tell", sentence, remedy="note the rows in their order, without ids")
    return differs.verdict(quantity, losses, settings, error)


def _begins_read_off(context: Context, note: Note) -> bool:
    """Return whether it is the coefficients that say where some completion begins."""
    begins = {context.step.rows[row].begins for row in note.kept}
    return not note.by_ids and bool(begins & {"coefficients", "unknown"})


def _because(losses: Losses) -> str:
    inputs = losses.rows.inputs
    reference = f"; the reference is {inputs.of_reference}" if inputs.reference is not None else ""
    return f"a coefficient is compared within its measured error, {share(losses.measured.relative)} of the typical one{reference}"
