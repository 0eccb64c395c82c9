"""Mistakes in packing."""

from gates.mutants.planting import in_numpy

_GATE = ("packing.bins-hold-every-sequence-once",)

in_numpy(
    "packing.one-token-too-many",
    "pack_sequences",
    "overflowing_bins",
    mistake="the separator token of each sequence is not counted, so a full bin overflows",
    arises="lengths taken before the EOS is appended",
    caught_by=_GATE,
)
in_numpy(
    "packing.last-sequence-lost",
    "pack_sequences",
    "lose_the_last",
    mistake="the last sequence of the last bin is dropped",
    arises="a loop that closes a bin only when the next sequence opens one",
    caught_by=_GATE,
)
in_numpy(
    "packing.unstable-ties",
    "pack_sequences",
    "unstable_ties",
    mistake="sequences of equal length are ordered differently in every call",
    arises="an unstable sort by length",
    caught_by=_GATE,
)
