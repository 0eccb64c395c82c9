"""The verdict on coefficients that a preference loss does not give: another choice, a factor, or a mistake."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from gates.diagnosis.factors import constant, quotient
from gates.families.program import Edit
from gates.model import Array
from gates.recorded import choices
from gates.xray.reading.words import number, plural, some
from gates.xray.verdict.definitions import SURE
from gates.xray.verdict.mistakes import Named, masks
from gates.xray.verdict.preference.losses import BETAS, Losses, Settings
from gates.xray.verdict.preference.settings import ALONE, SETTINGS
from gates.xray.verdict.verdict import Verdict
from gates_reference.oracle.preference import PAIR_LOSSES

FACTOR = "look at the division by the passes of an update (gradient accumulation), by pairs or by rows; a later update tells β"
HALF = "cannot be told from half-precision arithmetic of log-probs"
REFERENCE = "note `reference_log_probs`, a list a row with a number for each token of the completion"
SWAPPED = {True: "desirable and undesirable swapped", False: "chosen and rejected swapped"}
MEANS = {
    "token-mean": "a mean over their tokens",
    "row-mean": "a mean over rows of each row's mean",
    "row-sum": "a mean over rows of each row's sum",
}
LIKELIHOODS = tuple(MEANS)
LINEAR = ("dpo", "dpop", "hinge", "kto")  # proportional to β where policy and reference are equal
OWN: Mapping[str, Sequence[Mapping[str, float]]] = {  # constants that libraries have
    "simpo": [{"margin": margin} for margin in (0.5, 0.3, 1.0, 1.4, 1.6)],
    "dpop": [{"penalty": penalty} for penalty in (50.0, 5.0)],
}
WEIGHTS = (1.33, 4.0 / 3.0, 1.5, 2.0, 0.75, 0.5)  # of KTO's labels, the other being 1
MEANT: Mapping[str, Mapping[str, Any]] = {  # settings that ask for what edits compute
    "the loss of dpo": {"algorithm": "dpo"},
    "the loss of hinge": {"algorithm": "hinge"},
    "the loss of ipo with sums": {"algorithm": "ipo", "lengths": "sum"},
    "the loss of ipo with means": {"algorithm": "ipo", "lengths": "mean"},
    "the loss of orpo": {"algorithm": "orpo", "nll_tokens": "completion"},
    "the loss of simpo": {"algorithm": "simpo"},
    "the loss of cpo": {"algorithm": "cpo"},
    "the loss of dpop": {"algorithm": "dpop"},
    "log-ratios averaged over each completion's tokens": {"lengths": "mean"},
    "log-ratios summed over tokens": {"lengths": "sum"},
}


def error(losses: Losses, settings: Settings) -> str:
    """Return by how much the nearest definition is off, as a share of its largest coefficient, and at how many tokens."""
    best = (float("inf"), 0)
    for option in losses.options(settings):
        wanted = losses.of(option)
        if wanted is not None:
            off = np.abs(losses.measured.values - wanted)
            largest = float(off.max(initial=0.0) / max(float(np.abs(wanted).max(initial=0.0)), 1e-300))
            best = min(best, (largest, int((off > losses.measured.limits).sum())))
    if not np.isfinite(best[0]):
        return "no definition goes with these inputs"
    share = f"{100.0 * best[0]:.0f}%" if best[0] >= 0.01 else f"{100.0 * best[0]:.1g}%"
    return f"{plural(best[1], 'token')} off, by up to {share} of the largest coefficient"


def verdict(quantity: str, losses: Losses, settings: Settings, off: str) -> Verdict:
    """Return the verdict, with what is computed instead."""
    if swapped := _swapped(losses, settings):
        return Verdict(quantity, "wrong", off, swapped)
    scaled = _factor(losses, settings)
    if scaled is not None and scaled[1] < 0.0:
        times = "" if abs(scaled[1] + 1.0) < SURE else f", times {number(-scaled[1], 6)}"
        return Verdict(quantity, "wrong", off, f"the loss with the wrong sign{times}")
    named = _named(losses, settings)
    if scaled is not None and (not named or _usual(losses, *scaled)):
        return _scaled(quantity, losses, *scaled, named)
    if named:
        kept = [each for each in named if each.convention] or named
        texts = list(dict.fromkeys(each.words for each in kept))
        text = texts[0] if len(texts) == 1 else "cannot tell " + " or ".join(f"“{each}”" for each in texts[:2])
        remedy = choices.written(kept[0].changes).replace("write ", "note ", 1)
        return Verdict(quantity, "differs" if kept[0].convention else "wrong", off, text, remedy=remedy)
    return _unknown(quantity, losses, settings, off)


def _unknown(quantity: str, losses: Losses, settings: Settings, off: str) -> Verdict:
    """Return the verdict on coefficients without a name: wrong where every number that they need is recorded."""
    assumed = losses.rows.inputs.of_reference == "the weights before update 1"
    if assumed and settings["algorithm"] not in ALONE and settings.get("reference_free") != "true":
        sentence = f"nobody scored a reference, and with the weights before update 1 {off}"
        return Verdict(quantity, "cannot tell", sentence, "nothing that is known", remedy=REFERENCE)
    if losses.rounded and not losses.level:
        return Verdict(quantity, "cannot tell", off, HALF, remedy="record the script in float32")
    return Verdict(quantity, "wrong", off, "nothing that is known")


def _swapped(losses: Losses, settings: Settings) -> str:
    """Return which rows or pairs have the other part; empty where that does not give the coefficients."""
    name = settings["algorithm"]
    if name == "sft":
        return ""
    towards = _directions(losses)
    rows = np.arange(len(towards))
    if name == "kto":
        desirable = losses.rows.desirable
        assert desirable is not None
        off = np.flatnonzero(np.where(desirable, towards > 0.0, towards < 0.0))
        other = replace(losses.rows, desirable=desirable ^ np.isin(rows, off))
        listed, count = [f"row {number}" for number in losses.rows.numbers[off]], len(rows)
    else:
        off = np.flatnonzero(towards[0::2] > towards[1::2])
        other = losses.rows.taken(np.where(np.isin(rows // 2, off), rows ^ 1, rows))
        listed = [f"the pair of rows {a} and {b}" for a, b in losses.rows.numbers.reshape(-1, 2)[off]]
        count = len(rows) // 2
    if not len(off) or not losses.with_rows(other).fits(settings):
        return ""
    part = "" if len(off) == count else f" in {some(listed, 3)}"
    return SWAPPED[name == "kto"] + part


def _directions(losses: Losses) -> Array:
    """Return the median coefficient of each row's completion, of tokens that no other row has where there are some."""
    inputs, measured = losses.rows.inputs, losses.measured
    values = np.full(measured.total, np.nan)
    values[measured.columns] = measured.values
    shown = inputs.mask & (inputs.columns >= 0)
    rows_of = [set(row[mask].tolist()) for row, mask in zip(inputs.columns, shown, strict=True)]
    medians = np.zeros(len(rows_of))
    for index, columns in enumerate(rows_of):
        others = set().union(*(each for k, each in enumerate(rows_of) if k != index))
        own = values[sorted(columns - others or columns)]
        medians[index] = np.nanmedian(own) if np.isfinite(own).any() else 0.0
    return medians


def _factor(losses: Losses, settings: Settings) -> tuple[Settings, float] | None:
    """Return the definition that gives the coefficients but for a common factor, with the factor."""
    if settings.get("beta") is None and settings["algorithm"] != "sft":
        return None
    for option in losses.options(settings):
        each = next(losses.anchored(option))
        wanted = losses.of(each)
        factor = float("nan") if wanted is None else losses.measured.factor(wanted)
        if wanted is not None and np.isfinite(factor) and factor and losses.measured.misfit(factor * wanted) <= 1.0:
            return each, factor
    return None


def _words(losses: Losses, option: Settings, factor: float) -> list[str]:
    rows = np.arange(len(losses.rows.inputs.mask))
    call = {**losses.call({"beta": 1.0, **option, "algorithm": "sft"}, rows, 0), "lengths": None}
    call["micro_batches"] = [len(batch) for batch in losses.rows.batches] if len(losses.rows.batches) > 1 else None
    call["beta"] = option.get("beta")
    return [each.words for each in quotient([call], factor, SURE, single=False)]


def _usual(losses: Losses, option: Settings, factor: float) -> bool:
    """Return whether a factor is a short number or a quotient of counts, and so may be a division by passes."""
    return bool(_words(losses, option, factor)) or any(constant([], factor, SURE, single=False))


def _scaled(quantity: str, losses: Losses, option: Settings, factor: float, named: Sequence[Named]) -> Verdict:
    """Return the verdict on coefficients that are a definition's times one number."""
    beta = option.get("beta")
    of_beta = [f"β {beta * factor:.3g}"] if beta and losses.level and option["algorithm"] in LINEAR else []
    like = [*of_beta, *(each.words for each in named), *_words(losses, option, factor)]
    names = f" ({' or '.join(dict.fromkeys(like[:3]))})" if like else ""
    sentence = f"the coefficients are those of the definition times a constant factor of {number(factor, 6)}{names}"
    return Verdict(quantity, "cannot tell", sentence, remedy=FACTOR, numbers={"factor": factor})


def _named(losses: Losses, settings: Settings) -> list[Named]:
    """Return what gives the coefficients: another choice, other slots, a likelihood beside, an edit, else another β."""
    options = (
        [next(losses.anchored(option)) for option in losses.options(settings)]
        if "beta" in settings or settings["algorithm"] == "sft"
        else []
    )
    searches: tuple[Callable[[], list[Named]], ...] = (
        lambda: [*_other_settings(losses, settings), *_other_losses(losses, settings)],
        lambda: [each for option in options for each in _edited(losses, option, conventions=True)],
        lambda: list(_masked(losses, settings)),
        lambda: [each for option in options for each in _with_likelihood(losses, option)],
        lambda: [each for option in options for each in _edited(losses, option, conventions=False)],
        lambda: [*_other_beta(losses, settings), *_other_weights(losses, settings)],
    )
    for search in searches:
        if named := search():
            return named
    return []


def _other_settings(losses: Losses, settings: Settings) -> list[Named]:
    """Return what the settings ask otherwise and the definition has, such as an average."""
    named = []
    for key, words in (("lengths", "log-ratios by"), ("aggregation", "averaged by"), ("nll_tokens", "likelihood over")):
        for other in SETTINGS[key].choices if key in settings else ():
            if other != settings[key] and (fits := losses.fits({**settings, key: other})):
                text = f"{words} {other} (asked: {settings[key]})"
                named.append(Named(text, True, fits[0][1], {key: other}))
    return named


def _other_losses(losses: Losses, settings: Settings) -> list[Named]:
    """Return other losses of pairs, with constants that libraries have."""
    asked, named = settings["algorithm"], []
    if asked in {"kto", "sft"} or "beta" not in settings:
        return []
    for name in PAIR_LOSSES:
        for own in OWN.get(name, ({},)):
            kept = {key: value for key, value in settings.items() if key in {"beta", "nll", "reference_free", *own}}
            if name != asked and (fits := losses.fits({**own, **kept, "algorithm": name})):
                constants = "".join(f" with {key} {value:g}" for key, value in own.items())
                changes = {"algorithm": name, **own}
                named.append(Named(f"the loss of {name}{constants} (asked: {asked})", True, fits[0][1], changes))
    return named


def _other_weights(losses: Losses, settings: Settings) -> list[Named]:
    """Return other weights of KTO's labels: as the coefficients have them at the z0 that is known, else usual ones."""
    if settings["algorithm"] != "kto":
        return []
    named, read_off = [], _weights(losses, settings)
    for pair in [*([read_off] if read_off else []), *((a, b) for x in WEIGHTS for a, b in ((x, 1.0), (1.0, x)))]:
        changes = dict(zip(("desirable_weight", "undesirable_weight"), pair, strict=True))
        if fits := losses.fits({**settings, **changes}):
            words = "λ_D {:g} and λ_U {:g}".format(*pair)
            asked = "{:g} and {:g}".format(*(settings.get(name, 1.0) for name in changes))
            named.append(Named(f"{words} (asked: {asked})", True, fits[0][1], changes))
            break
    return named


def _weights(losses: Losses, settings: Settings) -> tuple[float, float] | None:
    """Return the weights of least squares, where no z0 has to be read off as well."""
    option = next(losses.anchored(losses.options(settings)[0]))
    sides = [
        losses.of({**option, "desirable_weight": up, "undesirable_weight": down})
        for up, down in ((1.0, 0.0), (0.0, 1.0))
    ]
    if any(side is None for side in sides):
        return None
    limits = losses.measured.limits
    columns = np.stack([side / limits for side in sides if side is not None], axis=1)
    up, down = np.linalg.lstsq(columns, losses.measured.values / limits, rcond=None)[0]
    return float(f"{up:.3g}"), float(f"{down:.3g}")


def _edited(losses: Losses, option: Settings, *, conventions: bool) -> list[Named]:
    if option["algorithm"] == "sft":
        return []
    named = []
    for edit in _edits(losses, option):
        if edit.convention != conventions or "mask" in edit.changes:
            continue
        wanted = losses.edited(option, edit.changes)
        if wanted is None or (misfit := losses.measured.misfit(wanted)) > 1.0:
            continue
        meant = {"reference_free": "true"} if edit.changes == {"reference": "none"} else MEANT.get(edit.words, {})
        named.append(Named(edit.sentence, conventions, misfit, meant if conventions else {}))
    return named


def _edits(losses: Losses, option: Settings) -> Iterator[Edit]:
    program = losses.program(option)
    yield from program.edits(program.asked(losses.call(option, np.arange(len(losses.rows.inputs.mask)), 0)))


def _masked(losses: Losses, settings: Settings) -> Iterator[Named]:
    """Yield other slots with which the definition gives the coefficients."""
    for words, mask, convention in masks(losses.rows.parts):
        if not mask.any() or np.array_equal(mask, losses.rows.inputs.mask):
            continue
        if fits := losses.with_rows(losses.rows.with_mask(mask)).fits(settings):
            yield Named(words, convention, fits[0][1])


def _with_likelihood(losses: Losses, option: Settings) -> Iterator[Named]:
    """Yield a likelihood of the chosen completions beside the loss, with the weight that the coefficients have."""
    if option["algorithm"] in {"kto", "sft"}:
        return
    plain = {**option, "nll": 0.0}
    start, measured = losses.of(plain), losses.measured
    if start is None:
        return
    for mean in LIKELIHOODS:
        column = losses.predicted(lambda rows, _, mean=mean: losses.likelihood(rows, mean), batched=option["batched"])  # type: ignore[misc]
        if column is None:
            continue
        left = replace(measured, values=measured.values - start)
        weight = float(f"{left.factor(column):.3g}")
        misfit = measured.misfit(start + weight * column)
        if np.isfinite(weight) and misfit <= 1.0:
            has = option["algorithm"] in {"cpo", "orpo"}
            asked = f" (asked: {option.get('nll', 1.0 if has else 0.0):g})"
            words = f"a likelihood of the chosen completions, {MEANS[mean]}, with weight {weight:g}{asked}"
            yield Named(
                words, mean == "token-mean" and weight > 0.0, misfit, {"nll": weight} if mean == "token-mean" else {}
            )


def _other_beta(losses: Losses, settings: Settings) -> list[Named]:
    if settings["algorithm"] in {"kto", "sft"} or settings.get("beta") is None:
        return []
    asked = settings["beta"]
    fits = losses.fits({name: value for name, value in settings.items() if name != "beta"})
    return [
        Named(f"β {each['beta']:g} (asked: {asked:g})", False, misfit) for each, misfit in fits if each["beta"] in BETAS
    ]
