"""The generators of valid inputs, by op."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module

from gates.families.valid import Generator
from gates.registry import load
from gates_reference.kernels import KERNELS

FAMILIES = ("advantages", "kl", "logprobs", "loss", "packing", "philox", "preference", "ratio", "sampling")


@cache
def generators() -> Mapping[str, Generator]:
    """Return the generators of the families' inputs; a kernel without one has the cases of its gate."""
    modules = (import_module(f"gates.families.{family}.inputs") for family in FAMILIES)
    own = {generator.op: generator for module in modules for generator in module.GENERATORS}
    return own | {kernel: of_cases(kernel) for kernel in KERNELS if kernel not in own}


def of_cases(op: str) -> Generator:
    """Return what the cases of an op's first gate draw with other seeds: their shapes and options, and no others."""
    gate = next(gate for gate in load().gates.values() if gate.ops[0].name == op)
    cases = {case.name: case for case in gate.cases}
    wide = [name for name, case in cases.items() if case.conventions.get("dtype") == "float64"]
    names = (*wide, *(name for name in cases if name not in wide))
    return Generator(op, {"case": names}, lambda rng, case: dict(cases[case].make(rng)))
