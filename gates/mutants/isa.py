"""Mistakes in one of several variants of a kernel."""

from gates.model import Mutant
from gates.registry import REGISTRY

REGISTRY.add_mutant(
    Mutant(
        "isa.one-lane-of-one-set",
        "one lane of one instruction set rounds otherwise: its last bit differs from the scalar one's",
        "rlkernels",
        "gates.subjects.rlkernels:variant_bytes",
        "gates.mutants.patches.isa:last_bit_of_one_lane",
        ("isa.bits-identical",),
        arises="a multiply and an add where the other variants fuse them",
        theme="precision",
        symptom="Nothing in any curve: two machines part in the last bit, and a resumed run is no longer the same run.",
    )
)
REGISTRY.add_mutant(
    Mutant(
        "isa.sum-follows-the-threads",
        "the result of three threads differs in its last bit from that of one",
        "rlkernels",
        "gates.subjects.rlkernels:variant_bytes",
        "gates.mutants.patches.isa:last_bit_with_threads",
        ("isa.bits-identical",),
        arises="partial sums per thread instead of per chunk",
        theme="precision",
        symptom="Nothing in any curve: the same seed gives other losses with another number of threads.",
    )
)
