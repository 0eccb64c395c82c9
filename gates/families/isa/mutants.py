"""Mutations of one variant of a kernel."""

from gates.families.hosts import in_kernels

in_kernels(
    "isa.one-lane-of-one-set",
    "rlkernels:variant_bytes",
    "isa.patches:last_bit_of_one_lane",
    mistake="one lane of one instruction set rounds differently: its last bit differs from the scalar result",
    caught_by=("isa.bits-identical",),
    arises="a separate multiply and add where the other variants use a fused one",
    theme="precision",
    symptom="No curve shows it: two machines differ in the last bit, and a resumed run is not the same run.",
)
in_kernels(
    "isa.sum-follows-the-threads",
    "rlkernels:variant_bytes",
    "isa.patches:last_bit_with_threads",
    mistake="the result with three threads differs in its last bit from that with one",
    caught_by=("isa.bits-identical",),
    arises="partial sums per thread instead of per chunk",
    theme="precision",
    symptom="No curve shows it: the same seed gives different losses with another number of threads.",
)
