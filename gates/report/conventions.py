"""Explain each convention in one line with an example, for `gates ops` and for the file that `gates init` writes.

A new convention that is not an input of its op needs an entry here, under its name or that of op and convention, and so does
one with a choice that must be declared (`Case.declared`). The words of an input explain one of its name without words here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gates.model import Op, Wire


@dataclass(frozen=True, slots=True)
class Convention:
    """One line about a convention, and an example of a declaration, with its meaning where it is not obvious."""

    words: str = ""  # empty: those of the input of its name
    example: str = ""  # empty: the first choice that cases request
    declared: str = (
        ""  # which of its choices no subject is asked without declaring them; empty: none, or the words say so
    )


AXIS = (
    "a declared choice replaces that of EVERY algorithm whose own, or None, is not declared too, so declare one only where your "
    "code has another than the algorithm's name says"
)
OTHER = "a choice that is not the algorithm's own is"
CONVENTIONS = {
    "dtype": Convention("of the input arrays", 'dtype=("float32",): it does not take float64'),
    "arithmetic": Convention(
        "the dtype of its arithmetic, whatever that of the data",
        'arithmetic=("float32",): no more precision is expected of float64 data, nor without the word; ("float64",) promises it',
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
    "kl_clamp": Convention(
        "the largest |KL estimate| of a token", "kl_clamp=(None, 10.0): without one and, as verl, at 10", "a clamp is"
    ),
    "count_eps": Convention(
        "ε that a masked mean of token losses adds to its count, Σ m·l / (Σ m + ε)",
        "count_eps=(1e-5,): every mean has this one", "another than 0.0 is",
    ),
    "kl_aggregation": Convention(
        "how the KL is averaged: as the rest of the loss (same), or otherwise",
        'kl_aggregation=("token-mean",): over all tokens, whatever the loss does',
        "another than same is",
    ),
    "clipped": Convention("whether RLOO's ratio is clipped", "clipped=(True,): it always is", "a clip is"),
    "lower_bound": Convention(
        "whether the constant ratio of CISPO has a lower bound", "lower_bound=(True,): every case has one", "a lower bound is"
    ),
    "clip_width": Convention("whether both sides of a clip have one width", 'clip_width=("one",): one ε in every case'),
    "cispo_bound": Convention("what the cap c of CISPO is", 'cispo_bound=("absolute",): ε_high in every case, not 1 + ε_high'),
    "ratio_level": Convention(
        f"whose ratio the loss takes; {AXIS}", 'ratio_level=("seq_mean",): the row\'s mean ratio', OTHER
    ),
    "bound": Convention(f"what bounds the ratio; {AXIS}", 'bound=("none",): nothing does', OTHER),
    "aggregation": Convention(
        f"what a token weighs; {AXIS}", 'aggregation=("token-mean",): Σ m·l / Σ m, as verl\'s default', OTHER
    ),
    "parts": Convention("the micro-batches of a step", 'parts=("equal",): all have as many rows; ("any",): as many as you like'),
    "weights": Convention("whether off-policy weights are taken", "weights=(False,): it has none"),
    "eps_mode": Convention(declared='"floor" or "threshold-add" is'),
    "nan_rewards": Convention("what a NaN reward means", declared="it is"),
    "nan_sampling": Convention("what a NaN log-prob of the sampler means", declared="it is"),
    "pack_sequences.order": Convention("in which order bins and sequences lie", declared="it is"),
    "prefer.ties": Convention("which of equal scores counts", declared="it is"),
    "best_of_n.ties": Convention("which of equal scores counts", declared="it is"),
    "filtered_logprobs.ties": Convention(declared="each is"),
    "sample_tokens.ties": Convention(declared="each is"),
    "filtered_logprobs.arithmetic": Convention(
        "the dtype of its arithmetic, whatever that of the data", declared="what only float64 tells apart is"
    ),
    "sample_tokens.arithmetic": Convention(
        "the dtype of its arithmetic, whatever that of the data", declared="what only float64 tells apart is"
    ),
    "group_advantages.baseline": Convention(declared='"batch" or "none" is'),
    "nll_tokens": Convention(
        "over which tokens ORPO's likelihood runs", 'nll_tokens=("completion",): the completion alone; ("all",): the prompt too'
    ),
    "reference_free": Convention(
        "whether dpo, hinge, ipo and dpop are asked without a reference", "reference_free=(False,): there always is one"
    ),
    "clip": Convention("whether a trainer has a clip of the ratio", 'clip=("none",): it has none', '"none" is'),
    "prompts_per_step": Convention(
        "how many prompts an update of a trainer has", 'prompts_per_step=("one",): one group a step', '"one" is',
    ),
    "row_lengths": Convention(
        "whether rows of a step differ in length", 'row_lengths=("equal",): a trainer without a mask', '"equal" is',
    ),
    "prompt": Convention(
        "whether both completions of a pair begin with the same prompt",
        'prompt=("shared",): its tokens may be scored, the difference cancels',
    ),
}  # fmt: skip


def explained(name: str, op: Op, choices: Sequence[Wire]) -> str:
    """Return one line and an example: `of the input arrays; such as dtype=("float32",)`."""
    known = CONVENTIONS.get(f"{op.name}.{name}") or CONVENTIONS.get(name) or Convention()
    example = known.example or f"{name}=({choices[0]!r},)".replace("'", '"')
    declared = f"{known.declared} asked only of a subject that declares it" if known.declared else ""
    return "; ".join(filter(None, (known.words or op.inputs.get(name, ""), declared, f"such as {example}")))
