"""What a subject provides of an op: its choices, and which inputs its function may lack."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gates.model import Wire

NEUTRAL: Mapping[str, Wire] = {  # inputs that a function may lack, with the value that asks for nothing
    **dict.fromkeys(("old", "reference", "mask", "lengths", "weights", "delta", "kl_estimator")),
    **dict.fromkeys(("max_length", "micro_batches", "dapo_denominator", "group_size", "tokens_in_step", "cispo_bound")),
    **dict.fromkeys(("epsilon_low", "epsilon_high", "sapo_temperature_positive", "sapo_temperature_negative")),
    **dict.fromkeys(("ddof", "eps", "eps_mode", "bootstrap", "terminal", "c_min", "history", "xtc_coin")),
    **dict.fromkeys(("penalty", "margin", "nll", "attention_mask", "grad_entropy")),
    "label_smoothing": 0.0,
    "kl_ratio": "none",
    "reduction": "none",
    "beta": 0.0,
    "temperature": 1.0,
    "entropy": False,
    "top_k": 0,
    "top_p": 1.0,
    "min_p": 0.0,
    "xtc_probability": 0.0,
    "xtc_threshold": 0.125,  # of cases without XTC
    "repetition_penalty": 1.0,
    "desirable_weight": 1.0,
    "undesirable_weight": 1.0,
}
BOUNDS_OF_RATIO = ("epsilon_low", "epsilon_high", "delta")  # none of them reaches a ratio of 1


def asks(name: str, value: Any) -> bool:
    """Whether an input has another value than its neutral one."""
    return isinstance(value, np.ndarray) or (value is not None and value != NEUTRAL.get(name))


@dataclass(frozen=True, slots=True)
class Provided:
    """One op that a subject provides, with the conventions that it declares at the handshake.

    Attributes:
        op: the name of the op.
        conventions: the choices that it has, by convention.
        implied: the conventions of which it has one choice and for which its function has no argument; they are not
            passed to it.
        arguments: the names by which its function takes arguments; None: any, empty: unknown.
    """

    op: str
    conventions: Mapping[str, tuple[Wire, ...]] = field(default_factory=dict)
    implied: tuple[str, ...] = ()
    arguments: tuple[str, ...] | None = ()

    def omits(self, name: str, inputs: Mapping[str, Any]) -> bool:
        """Whether an input is left out: its function has no argument for it, and its value asks for nothing more.

        That is its neutral value; as `epsilon_high` that of `epsilon_low`, for a function with one width; or any bound of
        the ratio on policy, where every ratio is 1. An absolute cap alone may lie below 1.
        """
        value = inputs[name]
        if not self.lacks(name) or isinstance(value, np.ndarray):
            return False
        one_width = name == "epsilon_high" and value == inputs.get("epsilon_low")
        on_policy = "old" in inputs and inputs["old"] is None and inputs.get("cispo_bound") != "absolute"
        inert = name in NEUTRAL and bool(value == NEUTRAL[name])
        return value is None or one_width or inert or (on_policy and name in BOUNDS_OF_RATIO)

    def lacks(self, name: str) -> bool:
        """Whether its function is known to have no argument of this name, which would be passed to it."""
        return bool(self.arguments) and name not in (self.arguments or ()) and name not in self.implied
