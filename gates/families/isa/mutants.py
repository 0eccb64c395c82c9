"""Mutations of one variant of a kernel."""

from gates.families.hosts import in_kernels

in_kernels(
    "isa.one-lane-of-one-set",
    "rlkernels:variant_bytes",
    "isa.patches:last_bit_of_one_lane",
    mistake="one lane of one instruction set rounds otherwise: its last bit differs from the scalar one's",
    caught_by=("isa.bits-identical",),
    arises="a multiply and an add where the other variants fuse them",
    theme="precision",
    symptom="Nothing in any curve: two machines part in the last bit, and a resumed run is no longer the same run.",
)
in_kernels(
    "isa.sum-follows-the-threads",
    "rlkernels:variant_bytes",
    "isa.patches:last_bit_with_threads",
    mistake="the result of three threads differs in its last bit from that of one",
    caught_by=("isa.bits-identical",),
    arises="partial sums per thread instead of per chunk",
    theme="precision",
    symptom="Nothing in any curve: the same seed gives other losses with another number of threads.",
)
