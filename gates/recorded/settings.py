"""Parse the settings of a recorded step and check them against its tensors."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

from gates.families.loss.program import row_of
from gates.model import ConfigurationError
from gates.nearest import hint
from gates.recorded.fields import IGNORED, KEY, SETTINGS, VERSION, Setting
from gates_reference.algorithms import AXES

Settings = Mapping[str, Any]
ADVANTAGES = ("scale", "ddof", "eps", "eps_mode", "baseline")


def parse(metadata: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings in the metadata.

    Raises:
        ConfigurationError: not a recorded step, another version, an unknown setting or an invalid value.
    """
    version = metadata.get(KEY)
    if version is None:
        raise ConfigurationError(
            f'its metadata have no `{KEY}`: write {{"{KEY}": "{VERSION}", …}} (docs/recorded-steps.md)'
        )
    if version != VERSION:
        raise ConfigurationError(f"its `{KEY}` is {version!r}, this version of Gates reads {VERSION!r}")
    settings = {}
    for name, text in metadata.items():
        if name == KEY or name in IGNORED:
            continue
        if name not in SETTINGS:
            raise ConfigurationError(
                f"setting `{name}` is unknown{hint(name, SETTINGS)}; docs/recorded-steps.md lists them"
            )
        settings[name] = value(name, text, SETTINGS[name])
    return settings


def value(name: str, text: str, setting: Setting) -> Any:
    """Return the value of a setting that is written as text.

    Raises:
        ConfigurationError: it is none that the setting may have.
    """
    if setting.kind == "text":
        return text
    if setting.kind == "word":
        if text not in setting.choices:
            raise ConfigurationError(
                f"setting `{name}` is {text!r}, must be one of {', '.join(setting.choices)}{hint(text, setting.choices)}"
            )
        return text
    try:
        if setting.kind == "integers":
            return [int(part) for part in text.split(",")]
        number = int(text) if setting.kind == "integer" else float(text)
    except ValueError:
        raise ConfigurationError(f"setting `{name}` is {text!r}, must be {_kind(setting.kind)}") from None
    if not math.isfinite(number):
        raise ConfigurationError(f"setting `{name}` is {text!r}, must be a finite number")
    return number


def _kind(kind: str) -> str:
    return {"integer": "an integer", "integers": "integers with commas, such as 4,4"}.get(kind, "a number")


def check(settings: Settings, tensors: Collection[str], rows: int) -> None:
    """Refuse settings that contradict the tensors or each other.

    Raises:
        ConfigurationError: the message names the setting and the remedy.
    """
    _check_groups(settings, tensors, rows)
    _check_advantages(settings)
    _check_algorithm(settings)
    if settings.get("beta"):
        if "reference" not in tensors:
            raise ConfigurationError(
                f"setting `beta` is {settings['beta']:g} but there is no tensor `reference`: add it, or leave `beta` out"
            )
        for name in ("kl_estimator", "kl_ratio"):
            if name not in settings:
                choices = ", ".join(SETTINGS[name].choices)
                raise ConfigurationError(f"setting `beta` needs `{name}`: write one of {choices}")
    if settings.get("correction") and "weights" not in tensors:
        if "sampling" not in tensors:
            raise ConfigurationError(
                "setting `correction` needs the tensor `sampling`: add it, or the `weights` that the loss used"
            )
        for name in ("correction_level", "correction_high"):
            if name not in settings:
                raise ConfigurationError(f"setting `correction` needs `{name}`: write it (docs/recorded-steps.md)")
    if settings.get("entropy_bonus") and "entropy" not in tensors:
        raise ConfigurationError("setting `entropy_bonus` needs the tensor `entropy`: add it")
    _check_old(settings, tensors)


def _check_old(settings: Settings, tensors: Collection[str]) -> None:
    if "old" in tensors:
        if settings.get("ratio") == "on-policy":
            raise ConfigurationError(
                "setting `ratio` is 'on-policy' but there is a tensor `old`: leave one of them out"
            )
        return
    names = ("epsilon_low", "epsilon_high", "delta", "algorithm")
    clip = next((name for name in names if name in settings), None)
    if clip is not None and settings.get("ratio") != "on-policy" and "policy" in tensors:
        raise ConfigurationError(
            f"setting `{clip}` asks for a ratio but there is no tensor `old`: add it, or write `ratio`: 'on-policy' if the "
            "step's old log-probs are the policy's own"
        )


def _check_algorithm(settings: Settings) -> None:
    name = settings.get("algorithm")
    if name is None:
        return
    try:
        needed = row_of(settings).constants
    except ValueError as error:
        raise ConfigurationError(f"settings {error}") from None
    missing = [constant for constant in needed if constant not in settings and constant != "delta"]
    if missing:
        choices = SETTINGS[missing[0]].choices
        remedy = f"write one of {', '.join(choices)}" if choices else "write it"
        raise ConfigurationError(f"setting `algorithm` is {name!r}, which needs `{missing[0]}`: {remedy}")


def _check_groups(settings: Settings, tensors: Collection[str], rows: int) -> None:
    size = settings.get("group_size")
    if size is None:
        return
    if "groups" in tensors:
        raise ConfigurationError("setting `group_size` and tensor `groups` are both given: leave one of them out")
    if size < 1 or rows % size:
        raise ConfigurationError(
            f"setting `group_size` is {size}, must divide the {rows} rows; give groups of several sizes by `groups`"
        )


def _check_advantages(settings: Settings) -> None:
    written = [name for name in ADVANTAGES if name in settings]
    if not written:
        return
    needed = ("scale", "baseline") if settings.get("scale") == "none" else ADVANTAGES
    for name in needed:
        if name not in settings:
            raise ConfigurationError(
                f"setting `{written[0]}` is given without `{name}`: write all of {', '.join(needed)}, or none and they are "
                "identified"
            )
    if extra := [name for name in written if name not in needed]:
        raise ConfigurationError(f"setting `{extra[0]}` means nothing with `scale` 'none': leave it out")
    if settings.get("statistics") == "tokens" and (
        settings.get("scale") != "batch" or settings["baseline"] not in {"batch", "mean"}
    ):
        raise ConfigurationError("setting `statistics` 'tokens' needs `scale` 'batch' and `baseline` 'batch' or 'mean'")
    if settings.get("ddof", 0) not in {0, 1}:
        raise ConfigurationError(f"setting `ddof` is {settings['ddof']}, must be 0 or 1")


CONSTANTS = (  # keywords of `policy_loss`
    "epsilon_low",
    "epsilon_high",
    "delta",
    "kl_ratio",
    "kl_estimator",
    "kl_clamp",
    "kl_aggregation",
    "count_eps",
    "max_length",
    "micro_batches",
    "dapo_denominator",
    "tokens_in_step",
    "cispo_bound",
    "sapo_temperature_positive",
    "sapo_temperature_negative",
)


TAPER = ("vespo_k_positive", "vespo_lambda_positive", "vespo_k_negative", "vespo_lambda_negative")


def of_loss(settings: Settings, group_size: int | None) -> dict[str, Any]:
    """Return the keywords of `policy_loss` that are no arrays; `group_size` only where the loss reads it."""
    constants: dict[str, Any] = {name: settings.get(name) for name in CONSTANTS}
    constants |= {name: settings[name] for name in (*AXES, *TAPER) if name in settings}
    by_group = settings.get("dapo_denominator") == "group"
    return {
        **constants,
        "algorithm": settings["algorithm"],
        "beta": settings.get("beta", 0.0),
        "group_size": group_size if by_group else None,
    }
