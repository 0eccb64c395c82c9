"""Explain each convention in one line with an example, for `gates ops` and for the file that `gates init` writes.

A new convention that is no input of its op needs an entry here, under its name or that of op and convention; the words of
an input explain one of its name that has no entry.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gates.model import Op, Wire


@dataclass(frozen=True, slots=True)
class Convention:
    """One line about a convention, and an example of a declaration, with its meaning where it is not obvious."""

    words: str
    example: str = ""  # empty: the first choice that cases request


CONVENTIONS = {
    "dtype": Convention("of the input arrays", 'dtype=("float32",): it does not take float64'),
    "arithmetic": Convention(
        "the dtype of its arithmetic, whatever that of the data",
        'arithmetic=("float32",): no more precision is expected of float64 data',
    ),
    "ids_per_position": Convention(
        "how many ids a position has", 'ids_per_position=("one",): ids of shape (…, K) are not taken'
    ),
    "rows": Convention(
        "which slots count, and where padding stands: by a mask whose padding is right of the tokens (mask), left of them "
        "(left-padded) or among them (holes), by lengths, flat, whole rows left out (row-mask), or all"
    ),
    "empty_rows": Convention("whether a row may be without tokens", "empty_rows=(False,): no row ever is"),
    "ratio": Convention(
        "whether old log-probs are given", 'ratio=("on-policy",): a library without old log-probs; every ratio is 1'
    ),
    "advantages": Convention(
        "what the advantages are given for",
        'advantages=("row",): one for a row; ("inside",): it takes rewards, and no case is asked',
    ),
    "clipped": Convention("whether RLOO's ratio is clipped"),
    "lower_bound": Convention("whether the constant ratio of CISPO has a lower bound; asked only of a subject that declares it"),
    "clip_width": Convention("whether both sides of a clip have one width", 'clip_width=("one",): one ε, not two'),
    "ratio_level": Convention(
        "whose ratio the loss takes instead of the algorithm's own", 'ratio_level=("seq_mean",): the row\'s mean ratio'
    ),
    "bound": Convention("what bounds the ratio instead of the algorithm's own", 'bound=("none",): nothing does'),
    "aggregation": Convention(
        "what a token weighs instead of as in the algorithm", 'aggregation=("token-mean",): Σ m·l / Σ m, as verl\'s default'
    ),
    "parts": Convention("the micro-batches of a step", 'parts=("equal",): all have as many rows; ("any",): as many as you like'),
    "weights": Convention("whether off-policy weights are taken", "weights=(False,): it has none"),
    "nan_rewards": Convention("what a NaN reward means; asked only of a subject that declares it", 'nan_rewards=("unscored",)'),
    "nan_sampling": Convention(
        "what a NaN log-prob of the sampler means; asked only of a subject that declares it",
        'nan_sampling=("unrecorded",)',
    ),
    "pack_sequences.order": Convention("in which order bins and sequences lie; asked only of a subject that declares it", 'order=("as-placed",)'),
    "prefer.ties": Convention("which of equal scores counts; asked only of a subject that declares it", 'ties=("first",)'),
    "best_of_n.ties": Convention("which of equal scores counts; asked only of a subject that declares it", 'ties=("first",)'),
    "nll_tokens": Convention(
        "over which tokens ORPO's likelihood runs", 'nll_tokens=("completion",): the completion alone; ("all",): the prompt too'
    ),
    "prompt": Convention(
        "whether both completions of a pair begin with the same prompt",
        'prompt=("shared",): its tokens may be scored, the difference cancels',
    ),
}  # fmt: skip


def explained(name: str, op: Op, choices: Sequence[Wire]) -> str:
    """Return one line and an example: `of the input arrays; such as dtype=("float32",)`."""
    known = CONVENTIONS.get(f"{op.name}.{name}") or CONVENTIONS.get(name) or Convention(op.inputs.get(name, ""))
    example = known.example or f"{name}=({choices[0]!r},)".replace("'", '"')
    return f"{known.words}; such as {example}" if known.words else f"such as {example}"
