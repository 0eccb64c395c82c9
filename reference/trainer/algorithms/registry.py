"""Algorithms by name, made from a table of settings; what is unknown is refused with the nearest name that is known."""

from collections.abc import Mapping
from dataclasses import fields
from difflib import get_close_matches
from typing import Any

from pydantic import ValidationError

from reference.trainer.algorithms import (
    bnpo_trl,
    cispo,
    dapo,
    dr_grpo,
    gmpo,
    grpo,
    gspo,
    gspo_token,
    luspo,
    rloo,
    sapo,
)
from reference.trainer.algorithms.protocol import Algorithm
from reference.trainer.preference import best_of_n, dpo, online_dpo

ALGORITHMS: Mapping[str, tuple[type[Any], Any]] = {
    "grpo": (grpo.Grpo, grpo.Settings),
    "dr_grpo": (dr_grpo.DrGrpo, dr_grpo.Settings),
    "dapo": (dapo.Dapo, dapo.Settings),
    "bnpo-trl": (bnpo_trl.BnpoTrl, bnpo_trl.Settings),
    "gspo": (gspo.Gspo, gspo.Settings),
    "gspo-token": (gspo_token.GspoToken, gspo_token.Settings),
    "rloo": (rloo.Rloo, rloo.Settings),
    "cispo": (cispo.Cispo, cispo.Settings),
    "sapo": (sapo.Sapo, sapo.Settings),
    "gmpo": (gmpo.Gmpo, gmpo.Settings),
    "luspo": (luspo.Luspo, luspo.Settings),
    "dpo": (dpo.Dpo, dpo.Settings),
    "online_dpo": (online_dpo.OnlineDpo, online_dpo.Settings),
    "best_of_n": (best_of_n.BestOfN, best_of_n.Settings),
}


def settings_of(name: str) -> Any:
    """The Settings class of an algorithm, a pydantic dataclass.

    Raises:
        ValueError: there is no algorithm of this name.
    """
    if name not in ALGORITHMS:
        raise ValueError(f"algorithm is {name!r}, must be one of {', '.join(ALGORITHMS)}{_nearest(name, ALGORITHMS)}")
    return ALGORITHMS[name][1]


def create(name: str, settings: Mapping[str, Any]) -> Algorithm:
    """The algorithm of this name with these settings; a key that is left out has the algorithm's default.

    Raises:
        ValueError: an unknown name or key, a value of the wrong type, out of range, or at odds with another.
    """
    kind = settings_of(name)
    known = [field.name for field in fields(kind)]
    for key in settings:
        if key not in known:
            raise ValueError(f"{name}.{key} is unknown, must be one of {', '.join(known)}{_nearest(key, known)}")
    try:
        algorithm: Algorithm = ALGORITHMS[name][0](kind(**settings))
    except ValidationError as error:
        raise ValueError("; ".join(_sentence(name, problem) for problem in error.errors())) from error
    return algorithm


def _nearest(word: str, known: Mapping[str, Any] | list[str]) -> str:
    close = get_close_matches(word, list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def _sentence(name: str, problem: Any) -> str:
    where = ".".join([name, *(str(part) for part in problem["loc"] if isinstance(part, str))])
    if problem["type"] == "value_error":
        return f"{where}: {problem['ctx']['error']}"
    return f"{where} is {problem['input']!r}: {problem['msg'][0].lower()}{problem['msg'][1:]}"
