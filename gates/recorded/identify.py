"""Say which loss a recorded step has, where its settings do not name one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gates.model import ConfigurationError
from gates.recorded.finding import DECISIVE, Finding
from gates.recorded.loss import LossErrors, compare
from gates.recorded.naming import named
from gates.recorded.settings import Settings
from gates.recorded.step import Step
from reference.algorithms import ALGORITHMS, AXES

QUANTITY = "policy_loss"
FIRST = 2048  # slots: the piece on which a candidate is tried before the whole step
FREE = 1e9  # ε of a clip that never acts
WIDTHS = ((0.2, 0.2), (0.2, 0.28), (0.2, 0.3), (0.1, 0.1), (3e-4, 4e-4), (0.4, 0.4), (FREE, FREE))
BETAS = (0.04, 0.001, 0.01, 0.05, 0.1)
FREE_CONSTANTS = ("epsilon_low", "epsilon_high")  # whose values are tried
HOW = "write the setting `algorithm` and its constants to have it judged"


def identify(step: Step) -> Finding:
    """Return which definitions the recorded loss and gradient fit."""
    if step.tokens > DECISIVE and not {"gradient", "row_losses"} & set(step.file.shapes):
        return Finding(
            QUANTITY, "cannot tell", f"no settings are written, and the loss of {step.tokens} tokens alone: {HOW}"
        )
    fitting = [(settings, errors) for settings in _candidates(step) if (errors := _fits(step, settings))]
    names = list(dict.fromkeys(_name(settings) for settings, _ in fitting))
    if len(names) > 1:
        listed = " or ".join(f"“{name}”" for name in names[:3])
        return Finding(QUANTITY, "cannot tell", f"several definitions fit this step; {HOW}", f"cannot tell {listed}")
    if names:
        settings, errors = fitting[0]
        also = "".join(f" or {_constants(other)}" for other, _ in fitting[1:3])
        words = f"{names[0]} with {_constants(settings)}{also}"
        numbers = {"settings": dict(settings), "loss": errors.loss.worst}
        return Finding(
            f"{QUANTITY}[{settings['algorithm']}]", "correct", "no settings are written", words, numbers=numbers
        )
    return _unknown(step)


def _unknown(step: Step) -> Finding:
    """Return the nearest known mistake in GRPO, or that nothing is known."""
    for settings in _of("grpo", {}, step, WIDTHS[:1], _betas(step)):
        found = named(step, settings, 0)
        if found is not None and found.kind in {"mistake", "convention", "scaled", "lower precision"}:
            words = f"grpo with: {found.words}"
            return Finding(QUANTITY, "cannot tell", f"no settings are written; {HOW}", words)
    return Finding(QUANTITY, "cannot tell", f"no settings are written; {HOW}", "nothing that is known")


def _fits(step: Step, settings: Settings) -> LossErrors | None:
    try:
        first = compare(step, settings, most=1, at_once=FIRST)
        whole = compare(step, settings) if first.holds else first
    except ConfigurationError:  # a constant that does not fit, or advantages that differ within a row
        return None
    return whole if whole.holds else None


def _candidates(step: Step) -> Iterator[Settings]:
    for name, more in _variants(step):
        yield from _of(name, more, step, WIDTHS, _betas(step))


def _betas(step: Step) -> list[float]:
    """Return the β that is written, or those that are usual."""
    if "beta" in step.file.settings:
        return [step.file.settings["beta"]]
    return [0.0, *(BETAS if "reference" in step.file else ())]


def _of(
    name: str, more: Settings, step: Step, widths: tuple[tuple[float, float], ...], betas: list[float]
) -> Iterator[Settings]:
    """Yield the settings of an algorithm with each set of constants; what the file says is not tried otherwise."""
    given = step.file.settings
    fixed = {key: value for key, value in given.items() if key in ("delta", "kl_clamp") or key.startswith("correction")}
    for low, high in widths:
        epsilons = {"epsilon_low": given.get("epsilon_low", low), "epsilon_high": given.get("epsilon_high", high)}
        for beta in betas if ALGORITHMS[name].kl_in_loss else [0.0]:
            penalty = {"kl_estimator": given.get("kl_estimator", "k3"), "kl_ratio": given.get("kl_ratio", "none")}
            used = {key: value for key, value in epsilons.items() if key in ALGORITHMS[name].constants}
            yield {**fixed, "algorithm": name, "beta": beta, **(penalty if beta else {}), **used, **more}
        if "epsilon_high" not in ALGORITHMS[name].constants or "epsilon_high" in given:
            return


def _variants(step: Step) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each algorithm with each denominator and cap whose constants are known."""
    given = step.file.settings
    denominators = ["global", *(["group"] if step.group_size else []), *(["trl"] if "tokens_in_step" in given else [])]
    distinct = {tuple(getattr(row, axis) for axis in AXES): row for row in reversed(ALGORITHMS.values())}
    for row in reversed(distinct.values()):  # of the names of one function the first
        if any(name in row.constants and name not in given for name in ("micro_batches", "max_length")):
            continue
        fixed = {name: given.get(name, value) for name, value in row.constants.items() if name not in FREE_CONSTANTS}
        for denominator in denominators if row.aggregation == "token-mean" else [None]:
            tokens = {"tokens_in_step": given.get("tokens_in_step")} if denominator else {}
            more = {**fixed, **({"dapo_denominator": denominator, **tokens} if denominator else {})}
            for cap in ("relative", "absolute") if row.bound == "cap" else (None,):
                yield row.name, {**more, **({"cispo_bound": cap} if cap else {})}


def _name(settings: Settings) -> str:
    more = [str(settings[key]) for key in ("dapo_denominator", "cispo_bound") if settings.get(key)]
    return f"{settings['algorithm']} ({', '.join(more)})" if more else str(settings["algorithm"])


def _constants(settings: Settings) -> str:
    names = {"epsilon_low": "ε_low", "epsilon_high": "ε_high", "beta": "β"}
    if settings.get("epsilon_high") == FREE:
        return f"no clip that acts, β {settings['beta']:g}"
    return ", ".join(f"{words} {settings[key]:g}" for key, words in names.items() if settings.get(key) is not None)
