"""The generators of valid inputs by op."""

from __future__ import annotations

from gates.registry import load
from reference.kernels import KERNELS
from valid_inputs import Generator, integers, losses, preferences, ratios, rewards, vocabularies

OWN: dict[str, Generator] = {
    generator.op: generator
    for module in (losses, ratios, rewards, preferences, vocabularies, integers)
    for generator in module.GENERATORS
}


def _of_cases(op: str) -> Generator:
    """Return what the cases of an op's first gate draw with other seeds: their shapes and options, and no others."""
    gate = next(gate for gate in load().gates.values() if gate.ops[0].name == op)
    cases = {case.name: case for case in gate.cases}
    return Generator(op, {"case": tuple(cases)}, lambda rng, case: cases[case].make(rng))


GENERATORS = OWN | {kernel: _of_cases(kernel) for kernel in KERNELS if kernel not in OWN}
