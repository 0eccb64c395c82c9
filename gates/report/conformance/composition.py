"""Say in words which composition a library's settings make of a row: its ratio, bound, aggregation, KL and extras."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gates.results.conformance_records import FindingRecord
from gates_reference.algorithms import ALGORITHMS, AXES, Algorithm, composed

COMPOSED = "policy_loss["  # its ops may be a preset with other choices: `policy_loss[grpo, no bound, token mean]`
KL_IN_PAPER = ("grpo",)  # presets whose paper has a KL in the loss, so that its absence is said


def choices(op: str) -> str:
    """Return the choices of a composition beside its preset: "no bound, token mean"."""
    return op.removeprefix(COMPOSED).rstrip("]").partition(", ")[2] if op.startswith(COMPOSED) else ""


def preset(op: str) -> str:
    """Return the op of a composition's preset: `policy_loss[grpo]`."""
    return f"{op.partition(', ')[0]}]" if choices(op) else op


def algorithm(settings: Mapping[str, Any]) -> Algorithm | None:
    """Return the policy loss that settings make, None where they are no such loss."""
    name = str(settings.get("algorithm"))
    if name not in ALGORITHMS:
        return None
    own = {axis: settings[axis] for axis in AXES if settings.get(axis) is not None}
    try:
        return composed(name, **own)
    except ValueError:
        return None


def departing(settings: Mapping[str, Any], from_preset: str) -> str:
    """Return how the settings in force differ from the preset of a row: "token mean, no KL"; empty where they do not."""
    here, wanted = algorithm(settings), ALGORITHMS.get(from_preset)
    words = []
    if here is not None and wanted is not None:
        words += [AXES[axis][getattr(here, axis)].text for axis in AXES if getattr(here, axis) != getattr(wanted, axis)]
        words += ["clip"] if _clipped_beside(here, settings) else []
    if from_preset in KL_IN_PAPER and here is not None and not settings.get("beta"):
        words.append("no KL")
    if settings.get("loss") == "cpo" and not settings.get("nll"):
        words.append("no likelihood")
    if settings.get("nll_tokens") == "all":
        words.append("likelihood of prompt and completion")
    return ", ".join(words)


def _clipped_beside(row: Algorithm, settings: Mapping[str, Any]) -> bool:
    """Return whether a loss whose preset has no bound is clipped, as RLOO may be."""
    return row.bound == "none" and row.ratio_level != "none" and settings.get("epsilon_low") is not None


def said(findings: Iterable[FindingRecord], presets: Iterable[str], uses: Iterable[str]) -> str:
    """Return the choices that findings of these uses say a library makes of a preset, those on axes first."""
    found = {
        departure.partition(", ")[2]: None
        for finding in findings
        if finding.use in uses
        for departure in finding.departures
        if departure.partition(", ")[0] in presets
    }
    order = {choice.text: None for words in AXES.values() for choice in words.values()}
    return ", ".join([*(text for text in order if text in found), *(text for text in found if text not in order)])


def in_columns(settings: Mapping[str, Any]) -> dict[str, str]:
    """Return ratio, bound, aggregation, KL and advantages of settings in force, each in words."""
    row = algorithm(settings)
    if row is None:
        return {}
    low, high = settings.get("epsilon_low"), settings.get("epsilon_high")
    clipped = low is not None and (row.bound in {"clip", "log-clip"} or _clipped_beside(row, settings))
    bound = AXES["bound"]["clip" if _clipped_beside(row, settings) else row.bound].text
    beta, estimator = settings.get("beta"), settings.get("kl_estimator", "k3")
    times = {None: "", "none": ""}.get(settings.get("kl_ratio"), " times the ratio")
    reward = settings.get("kl_in_reward")
    kl = f"{estimator}{times}, weight {beta:g}" if beta else f"in the reward, weight {reward:g}" if reward else "none"
    return {
        "ratio": AXES["ratio_level"][row.ratio_level].text
        + (", always 1" if settings.get("ratio") == "on-policy" else ""),
        "bound": f"{bound} {low:g}, {high:g}" if clipped else bound,
        "aggregation": AXES["aggregation"][row.aggregation].text,
        "KL": kl,
        "advantages": _advantages(settings),
    }


def _advantages(settings: Mapping[str, Any]) -> str:
    baseline = {"mean": "less the group's mean", "leave-one-out": "less the mean of the others"}.get(
        str(settings.get("baseline")), "no baseline"
    )
    scale = settings.get("scale")
    if scale in {None, "none"}:
        return baseline
    ddof = "n − 1" if settings.get("ddof") else "n"
    return f"{baseline}, over the {scale}'s deviation ({ddof}, ε {settings.get('eps', 0):g})"


def axes_of(preset_name: str, words: str) -> dict[str, str]:
    """Return ratio, bound and aggregation of a preset with other choices, which words name: "no bound, token mean"."""
    named = {choice.text: (axis, word) for axis, choices_ in AXES.items() for word, choice in choices_.items()}
    given = dict(named[text] for text in words.split(", ") if text in named)
    if given.get("ratio_level") == "none":
        given["bound"] = "none"
    row = composed(preset_name, **given)
    return {
        "ratio": AXES["ratio_level"][row.ratio_level].text,
        "bound": AXES["bound"][row.bound].text,
        "aggregation": AXES["aggregation"][row.aggregation].text,
    }
