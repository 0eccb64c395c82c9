"""Mutations of packing."""

from gates.families.hosts import in_numpy

_GATE = ("packing.bins-hold-every-sequence-once",)

in_numpy(
    "packing.one-token-too-many",
    "packing:pack_sequences",
    "packing.patches:overflowing_bins",
    mistake="the separator token of each sequence is not counted, so a full bin overflows",
    arises="lengths taken before the EOS is appended",
    theme="packing",
    symptom="An out-of-memory error or a lost token once in thousands of batches.",
    caught_by=_GATE,
)
in_numpy(
    "packing.last-sequence-lost",
    "packing:pack_sequences",
    "packing.patches:lose_the_last",
    mistake="the last sequence of the last bin is dropped",
    arises="a loop that emits a bin only when the next sequence opens another",
    source="huggingface/trl#1850: the remainder is discarded",
    theme="packing",
    symptom="No curve shows it: a few examples per epoch are never seen.",
    caught_by=_GATE,
)
in_numpy(
    "packing.unstable-ties",
    "packing:pack_sequences",
    "packing.patches:unstable_ties",
    mistake="sequences of equal length are ordered differently in every call",
    arises="an unstable sort by length",
    theme="packing",
    symptom="No curve shows it: two runs with one seed see different batches.",
    caught_by=_GATE,
)

in_numpy(
    "packing.last-of-ties-first",
    "packing:pack_sequences",
    "packing.patches:last_of_ties_first",
    mistake="of sequences with equal length the last is placed first",
    arises="an ascending sort read backwards",
    theme="packing",
    symptom="No curve shows it: batches differ from those of another implementation of the same packing.",
    caught_by=("packing.order.as-placed",),
)

_EXACT = ("packing.matches-definition",)

in_numpy(
    "packing.best-fit-is-first-fit",
    "packing:pack_sequences",
    "packing.patches:first_fit_always",
    mistake="best fit chooses the first bin with room instead of the fullest",
    arises="a strategy flag that is ignored",
    theme="packing",
    symptom="Throughput is some percent lower than expected; losses are the same.",
    caught_by=_EXACT,
)
in_numpy(
    "packing.emptiest-bin",
    "packing:pack_sequences",
    "packing.patches:emptiest_bin",
    mistake="best fit chooses the bin with the most room, which is worst fit",
    arises="a heap ordered by descending room",
    theme="packing",
    symptom="More bins and more padding: throughput is lower, losses are the same.",
    caught_by=_EXACT,
)
in_numpy(
    "packing.silent-truncation",
    "packing:allowed_lengths",
    "packing.patches:truncate_always",
    mistake="a sequence longer than a bin is silently truncated",
    arises="min(length, max_length) before packing, as a safety net",
    source="huggingface/trl#4554: packing truncates without a word",
    theme="packing",
    symptom="Long answers lose their end and their EOS: the policy learns to stop less often.",
    caught_by=("packing.truncates-only-by-name",),
)
in_numpy(
    "packing.efficiency-of-what-was-given",
    "packing:efficiency",
    "packing.patches:before_truncation",
    mistake="the packing efficiency counts truncated tokens too",
    arises="the sum of the lengths before truncation",
    theme="metrics",
    symptom="The packing efficiency is reported too high, above 1 when many tokens are truncated.",
    caught_by=_EXACT,
)
in_numpy(
    "packing.efficiency-per-sequence",
    "packing:efficiency",
    "packing.patches:per_sequence",
    mistake="the packing efficiency divides by the size of one bin per sequence",
    arises="len(lengths) instead of the number of bins",
    theme="metrics",
    symptom="The packing efficiency is reported too low, as without packing.",
    caught_by=_EXACT,
)

_PIECES = ("packing.pieces.match-definition",)

in_numpy(
    "packing.split-loses-the-rest",
    "packing:split_pieces",
    "packing.patches:whole_bins_only",
    mistake="the last piece of a sequence that is longer than a bin is dropped",
    arises="length // max_length pieces, rounded down instead of up",
    theme="packing",
    symptom="Long answers lose their end and their EOS; nothing in the logs says how many tokens were trained on.",
    caught_by=_PIECES,
)
in_numpy(
    "packing.split-starts-again",
    "packing:split_pieces",
    "packing.patches:from_the_start",
    mistake="every piece of a split sequence begins at the sequence's first token",
    arises="tokens[:size] for each of the pieces",
    theme="packing",
    symptom=(
        "The loss is a little too low: beginnings of long documents are trained on several times, their ends never."
    ),
    caught_by=_PIECES,
)
in_numpy(
    "packing.wrapped-drops-the-last-bin",
    "packing:wrapped_pieces",
    "packing.patches:full_bins_only",
    mistake="the tokens that do not fill the last bin are dropped",
    arises="total // max_length bins, for equal shapes",
    source="huggingface/trl#1850: the remainder is discarded",
    theme="packing",
    symptom="No curve shows it: the last tokens of every mapped batch are never seen.",
    caught_by=_PIECES,
)
in_numpy(
    "packing.wrapped-cuts-by-sequence",
    "packing:wrapped_pieces",
    "packing.patches:sequences_apart",
    mistake="wrapping starts a new bin for every sequence, so that no two sequences share a bin",
    arises="cutting each sequence in a loop instead of their concatenation",
    theme="packing",
    symptom="Throughput is the same as without packing.",
    caught_by=_PIECES,
)
