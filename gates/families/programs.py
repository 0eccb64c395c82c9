"""The programs of all families, by op."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module

from gates.families.program import Program

FORMULAS = (  # modules of gates.families
    "advantages.program",
    "advantages.recurrence",
    "kl.program",
    "logprobs.gradient",
    "logprobs.program",
    "loss.options",
    "loss.program",
    "loss.rewarded",
    "loss.selection",
    "packing.program",
    "preference.kto",
    "preference.program",
    "preference.winners",
    "ratio.program",
    "ratio.statistics",
    "sampling.draws",
    "sampling.program",
)


@cache
def programs() -> Mapping[str, Program]:
    """Return the program of each op that can be diagnosed, imported at the first call."""
    modules = (import_module(f"gates.families.{name}") for name in FORMULAS)
    return {program.op: program for module in modules for program in module.PROGRAMS}
