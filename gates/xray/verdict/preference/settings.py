"""The settings of preference losses and of supervised training in a note."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gates.model import ConfigurationError
from gates.nearest import hint
from gates.recorded.fields import Setting
from gates.recorded.settings import value
from gates_reference.oracle.preference import LENGTHS, PAIR_LOSSES

LOSSES = (*PAIR_LOSSES, "kto", "sft")
ALONE = ("orpo", "simpo", "cpo", "sft")  # they have no reference
SETTINGS: Mapping[str, Setting] = {
    "algorithm": Setting("word", "the loss by name", LOSSES),
    "beta": Setting("number", "β, λ of `orpo`; absent: it is read off"),
    "label_smoothing": Setting("number", "of `dpo`; absent: 0"),
    "lengths": Setting(
        "word", "whether log-ratios are sums or means of tokens; absent: identified for `ipo`, else the loss's", LENGTHS
    ),
    "penalty": Setting("number", "λ of `dpop`"),
    "margin": Setting("number", "γ of `simpo`"),
    "nll": Setting(
        "number", "weight of the likelihood of the chosen completions (a mean over tokens); absent: 1 for `cpo`, else 0"
    ),
    "nll_tokens": Setting(
        "word",
        "whether the likelihood of `orpo` or `sft` is over completions or all tokens; absent: it is identified",
        ("completion", "all"),
    ),
    "reference_free": Setting("word", "whether nothing is subtracted; absent: `false`", ("true", "false")),
    "desirable_weight": Setting("number", "λ_D of `kto`; absent: 1"),
    "undesirable_weight": Setting("number", "λ_U of `kto`; absent: 1"),
    "aggregation": Setting(
        "word", "of `sft`; absent: it is identified", ("token-mean", "row-mean", "row-sum", "micro-batch")
    ),
}
NEEDED = {"dpop": ("penalty",), "simpo": ("margin",), "kto": ("beta",)}


def named(settings: Mapping[str, Any]) -> str | None:
    """Return the loss that a note names in the word `algorithm` or `loss`, if it has a definition here."""
    name = settings.get("algorithm", settings.get("loss"))
    return str(name) if str(name) in LOSSES else None


def parsed(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a note.

    Raises:
        ConfigurationError: a setting is unknown, missing, or its value invalid.
    """
    result: dict[str, Any] = {"algorithm": named(settings)}
    for name, given in settings.items():
        if given is None or name in {"algorithm", "loss"}:
            continue
        if name not in SETTINGS:
            reason = f"setting `{name}` is unknown beside `{result['algorithm']}`{hint(name, SETTINGS)}"
            raise ConfigurationError(f"{reason}; docs/xray.md lists them")
        text = str(given).lower() if isinstance(given, bool) else str(given)
        result[name] = value(name, text, SETTINGS[name])
    for name in NEEDED.get(result["algorithm"], ()):
        if name not in result:
            raise ConfigurationError(f"setting `algorithm` is {result['algorithm']!r}, which needs `{name}`: note it")
    if result.get("beta", 1.0) <= 0.0:
        raise ConfigurationError(f"setting `beta` is {result['beta']:g}, must be above 0")
    return result
