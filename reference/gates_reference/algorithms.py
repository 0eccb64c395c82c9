"""The algorithms of this repository by name: a row of choices each, from which cases, limits, diagnoses and texts are made.

A policy loss is a composition: whose ratio it takes, what bounds it, what a token weighs, and where the KL stands (`AXES`). An
algorithm is a preset of these choices; a choice that is declared beside its name overrides the preset's (`composed`).

The formulas are not here. The oracle, the NumPy baseline, the MLX trainer and the Rust kernels each keep their own formulas and
their own choices for a name, so that a wrong row cannot be wrong on both sides of a comparison: tests/consistency exchanges each
choice of each row and sees the judge notice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from types import MappingProxyType
from typing import Any, Literal, TypeVar

RatioLevel = Literal["token", "seq_mean", "seq_mean_token", "seq_sum", "none"]
Bound = Literal["clip", "log-clip", "cap", "gate", "taper", "none"]
Aggregation = Literal["row-mean", "row-sum", "token-mean", "micro-batch", "constant", "width"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One choice on an axis.

    Attributes:
        text: what reports call it.
        constants: the constants of `policy_loss` that it needs, each with the value at which gates judge it.
        optional: constants that it may have.
    """

    text: str
    constants: Mapping[str, Any] = field(default_factory=dict)
    optional: tuple[str, ...] = ()


_WIDTHS = {"epsilon_low": 0.2, "epsilon_high": 0.2}
_OF_MEANS = {"epsilon_low": 0.03, "epsilon_high": 0.04}  # few rows' mean ratios leave a range of 0.2

AXES: Mapping[str, Mapping[str, Choice]] = MappingProxyType(
    {
        "ratio_level": {
            "token": Choice(text="token ratio"),
            "seq_mean": Choice(text="row's mean ratio"),
            "seq_mean_token": Choice(text="row's mean ratio with token slopes"),
            "seq_sum": Choice(text="row's ratio product"),
            "none": Choice(text="no ratio"),
        },
        "bound": {
            "clip": Choice(text="clip", constants=_WIDTHS, optional=("delta",)),
            "log-clip": Choice(text="clip in nats", constants={"epsilon_low": 0.2, "epsilon_high": 0.3}),
            "cap": Choice(
                text="capped constant ratio",
                constants={"epsilon_high": 0.28, "cispo_bound": "relative"},
                optional=("epsilon_low",),
            ),
            "gate": Choice(
                text="smooth gate",
                constants={"sapo_temperature_positive": 1.0, "sapo_temperature_negative": 1.05},
            ),
            "taper": Choice(
                text="tapered constant ratio",
                constants={
                    "vespo_k_positive": 2.0,
                    "vespo_lambda_positive": 3.0,
                    "vespo_k_negative": 3.0,
                    "vespo_lambda_negative": 2.0,
                },
            ),
            "none": Choice(text="no bound"),
        },
        "aggregation": {
            "row-mean": Choice(text="row mean"),
            "row-sum": Choice(text="row sum"),
            "token-mean": Choice(
                text="token mean",
                constants={"dapo_denominator": "global"},
                optional=("group_size", "tokens_in_step"),
            ),
            "micro-batch": Choice(text="token mean of micro-batches", constants={"micro_batches": [3, 5]}),
            "constant": Choice(text="constant length", constants={"max_length": 32}),
            "width": Choice(text="padded width"),
        },
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Algorithm:
    """A policy loss: a preset, or a preset with other choices.

    Attributes:
        name: what configurations, ops and kernels call it.
        title: what its paper calls it.
        source: the paper with its equation, or the library that the name is of.
        loss: the formula in one line, as the question of its gate shows it.
        ratio_level: whose ratio r it takes: of the token; the row's geometric mean, also with the slope of the token's own
            (GSPO-token); the row's product; "none": the loss is −A·log π.
        bound: what bounds the ratio: "clip" from both sides (then δ may bound it once more), "log-clip" the log-ratios,
            "cap" from above as a constant (from below too where ε_low is given), "gate" smoothly, "taper" by a gamma weight
            that is a constant; or nothing.
        aggregation: what a token weighs.
        kl: whether a KL may stand in the loss, or only in the reward.
        constants: the constants that `policy_loss` takes for it, each with the value at which gates judge it.
        known_as: settings of libraries that choose it, by `dapo_denominator` where it has one.
        overrides: the axes on which it departs from the preset of its name.
    """

    name: str
    title: str
    source: str
    loss: str
    ratio_level: RatioLevel = "token"
    bound: Bound = "clip"
    aggregation: Aggregation = "row-mean"
    kl: Literal["loss", "reward"] = "loss"
    constants: Mapping[str, Any]
    known_as: Mapping[str, str] = field(default_factory=dict)
    overrides: tuple[str, ...] = ()

    @property
    def gate(self) -> str:
        """The gate that compares it with its definition."""
        return f"loss.{self.name.replace('_', '-').replace('+', 'p')}.matches-definition"

    @property
    def paper(self) -> str:
        """The source without its equation."""
        return self.source.partition(" eq.")[0]

    @property
    def text(self) -> str:
        """What reports call it: "gspo, token mean"."""
        return ", ".join([self.name, *(AXES[axis][getattr(self, axis)].text for axis in self.overrides)])

    @property
    def by_row(self) -> bool:
        """Whether a row has one advantage and one off-policy weight, instead of one for each token."""
        return self.ratio_level in {"seq_mean", "seq_sum"}

    @property
    def kl_in_loss(self) -> bool:
        """Whether β may be above 0."""
        return self.kl == "loss"

    @property
    def value_level(self) -> Literal["token", "seq_mean", "seq_sum"]:
        """Whose ratio has the value of r: where only the slope is the token's, the row's mean."""
        if self.ratio_level == "seq_mean_token":
            return "seq_mean"
        return "token" if self.ratio_level == "none" else self.ratio_level

    @property
    def two_sided(self) -> bool:
        """Whether it knows δ, the second bound on ratios under a negative advantage."""
        return self.bound == "clip"

    @property
    def mean_ratio(self) -> bool:
        """Whether the geometric mean of a row's ratios is clipped: few rows leave a range of 0.2, so theirs is narrower."""
        return self.ratio_level in {"seq_mean", "seq_mean_token"} and self.bound == "clip"

    @property
    def by_tokens(self) -> bool:
        """Whether a part of a step weighs as many of its tokens as it has, rather than as many rows."""
        return self.aggregation in {"token-mean", "micro-batch"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Preference:
    """An algorithm of the trainer that learns from chosen and rejected completions, and the gate of what is its own."""

    name: str
    title: str
    source: str
    gate: str


Row = TypeVar("Row", Algorithm, Preference)


def _by_name(*rows: Row) -> Mapping[str, Row]:
    return MappingProxyType({row.name: row for row in rows})


ALGORITHMS = _by_name(
    Algorithm(
        name="grpo",
        title="GRPO",
        source="arXiv 2402.03300 eq. 3",
        loss="mean_i(Σ_t m·l / n_i)",
        constants=_WIDTHS,
        known_as={"": 'TRL loss_type="grpo", verl loss_agg_mode="seq-mean-token-mean"'},
    ),
    Algorithm(
        name="dapo",
        title="DAPO",
        source="arXiv 2503.14476 eq. 8",
        loss="Σ m·l / Σ m with ε_low 0.2, ε_high 0.28",
        aggregation="token-mean",
        constants={"epsilon_low": 0.2, "epsilon_high": 0.28, "dapo_denominator": "global"},
        known_as={"global": 'verl loss_agg_mode="token-mean"', "trl": 'TRL loss_type="dapo"'},
    ),
    Algorithm(
        name="bnpo-trl",
        title="BNPO",
        source="TRL's loss_type bnpo",
        loss="mean over micro-batches of Σ m·l / Σ m",
        aggregation="micro-batch",
        constants={**_WIDTHS, "micro_batches": [4, 4]},
        known_as={"": 'TRL loss_type="bnpo"'},
    ),
    Algorithm(
        name="dr_grpo",
        title="Dr. GRPO",
        source="arXiv 2503.20783",
        loss="Σ m·l / (B · L_max), L_max the configured constant",
        aggregation="constant",
        constants={**_WIDTHS, "max_length": 32},
        known_as={"": 'TRL loss_type="dr_grpo"'},
    ),
    Algorithm(
        name="gspo",
        title="GSPO",
        source="arXiv 2507.18071 eq. 5",
        loss="mean_i l_i with r_i = exp(Σ m·D / n_i)",
        ratio_level="seq_mean",
        constants=_OF_MEANS,
        known_as={"": 'TRL importance_sampling_level="sequence"'},
    ),
    Algorithm(
        name="gspo-token",
        title="GSPO-token",
        source="arXiv 2507.18071 eq. 13",
        loss="mean_i(Σ_t m·l / n_i), r = stop(r_i)·exp(lp − stop(lp)), A per token",
        ratio_level="seq_mean_token",
        constants=_OF_MEANS,
        known_as={"": 'verl loss_mode="gspo"'},
    ),
    Algorithm(
        name="rloo",
        title="RLOO",
        source="arXiv 2402.14740",
        loss="−mean_i r_i·A_i with r_i = exp(Σ m·D)",
        ratio_level="seq_sum",
        bound="none",
        kl="reward",
        constants={},
    ),
    Algorithm(
        name="cispo",
        title="CISPO",
        source="arXiv 2506.13585 eq. 4",
        loss="−Σ m·stop(min(r, c))·A·lp / Σ m, c = 1 + ε_high or ε_high itself",
        bound="cap",
        aggregation="token-mean",
        constants={"epsilon_high": 0.28, "cispo_bound": "relative", "dapo_denominator": "global"},
    ),
    Algorithm(
        name="sapo",
        title="SAPO",
        source="arXiv 2511.20347",
        loss="−mean_i(Σ_t m·(4/τ)·σ(τ(r − 1))·A / n_i), τ by the sign of A",
        bound="gate",
        constants={"sapo_temperature_positive": 1.0, "sapo_temperature_negative": 1.05},
        known_as={"": 'TRL loss_type="sapo"'},
    ),
    Algorithm(
        name="gmpo",
        title="GMPO",
        source="arXiv 2507.20673 eq. 4",
        loss="−mean_i exp(mean_t q)·A, q = min(D, ε_high) or max(D, −ε_low) by the sign of A",
        ratio_level="seq_mean",
        bound="log-clip",
        constants={"epsilon_low": 0.2, "epsilon_high": 0.3},
        known_as={"": 'verl loss_mode="geo_mean"'},
    ),
    Algorithm(
        name="luspo",
        title="LUSPO",
        source="arXiv 2602.05261",
        loss="mean_i n_i·l_i with GSPO's ratio, the KL summed over tokens",
        ratio_level="seq_mean",
        aggregation="row-sum",
        constants=_OF_MEANS,
        known_as={"": 'TRL loss_type="luspo"'},
    ),
    Algorithm(
        name="reinforce",
        title="REINFORCE",
        source="Williams 1992",
        loss="−mean_i(Σ_t m·A·lp / n_i), without a ratio",
        ratio_level="none",
        bound="none",
        constants={},
    ),
    Algorithm(
        name="reinforce++",
        title="REINFORCE++",
        source="arXiv 2501.03262 eq. 2",
        loss="Σ m·l / Σ m; advantages are whitened over the batch, and the KL lowers the reward",
        aggregation="token-mean",
        kl="reward",
        constants={**_WIDTHS, "dapo_denominator": "global"},
    ),
    Algorithm(
        name="ppo",
        title="PPO with dual clip",
        source="arXiv 1912.09729 eq. 5",
        loss="Σ m·l / Σ m, where A < 0 no more than δ·|A|",
        aggregation="token-mean",
        constants={**_WIDTHS, "delta": 3.0, "dapo_denominator": "global"},
        known_as={"global": "verl clip_ratio_c"},
    ),
    Algorithm(
        name="vespo",
        title="VESPO",
        source="arXiv 2602.10693",
        loss="−Σ m·stop(φ(r_i))·A·lp / Σ m with r_i = exp(Σ m·D), φ(r) = e^λ·r^k·e^(−λr), k and λ by the sign of A",
        ratio_level="seq_sum",
        bound="taper",
        aggregation="token-mean",
        constants={**AXES["bound"]["taper"].constants, "dapo_denominator": "global"},
        known_as={"trl": 'TRL loss_type="vespo"'},
    ),
)
PREFERENCES = _by_name(
    Preference(name="dpo", title="DPO", source="arXiv 2305.18290", gate="preference.dpo.matches-definition"),
    Preference(
        name="online_dpo", title="Online DPO", source="arXiv 2402.04792", gate="preference.online.prefers-the-higher"
    ),
    Preference(
        name="best_of_n", title="Best-of-N", source="arXiv 2009.01325", gate="preference.best-of-n.trains-on-the-winner"
    ),
)


_TAKES = {axis: {word: {*one.constants, *one.optional} for word, one in words.items()} for axis, words in AXES.items()}


def composed(
    name: str, *, ratio_level: str | None = None, bound: str | None = None, aggregation: str | None = None
) -> Algorithm:
    """Return the preset of a name with the choices that are given instead of its own.

    Raises:
        ValueError: a name or a word is unknown, or no loss has these choices together.
    """
    _known("algorithm", name, ALGORITHMS)
    preset = ALGORITHMS[name]
    given = {"ratio_level": ratio_level, "bound": bound, "aggregation": aggregation}
    for axis, word in given.items():
        if word is not None:
            _known(axis, word, AXES[axis])
    other: dict[str, Any] = {axis: word for axis, word in given.items() if word not in {None, getattr(preset, axis)}}
    if not other:
        return preset
    row: Algorithm = replace(preset, **other, overrides=tuple(other))
    if reason := impossible(row.ratio_level, row.bound):
        raise ValueError(f"{row.text}: {reason}")
    kept = set().union(*(_TAKES[axis][getattr(row, axis)] for axis in ("bound", "aggregation") if axis not in other))
    kept -= {"epsilon_low", "epsilon_high"} if "ratio_level" in other else set()
    own = {constant: value for constant, value in preset.constants.items() if constant in kept}
    return replace(row, constants={**_constants(row), **own}, loss=f"{preset.loss}; with {row.text.partition(', ')[2]}")


def _constants(row: Algorithm) -> dict[str, Any]:
    widths = _OF_MEANS if row.mean_ratio else {}
    return {**AXES["bound"][row.bound].constants, **widths, **AXES["aggregation"][row.aggregation].constants}


def _known(axis: str, word: str, words: Iterable[str]) -> None:
    if word not in words:
        raise ValueError(f"`{axis}` is {word!r}, must be one of {', '.join(words)}")


def impossible(ratio_level: str, bound: str) -> str:
    """Return why no loss has this ratio under this bound, or nothing; every pair goes with every aggregation and KL."""
    if ratio_level == "none" and bound != "none":
        return "without a ratio there is nothing to bound"
    if ratio_level == "seq_mean_token" and bound in {"cap", "taper"}:
        return "the bounded ratio is a constant, so that the slope of the token's own is nowhere: seq_mean is the same"
    if bound == "log-clip" and ratio_level != "seq_mean":
        return "log-ratios of tokens are clipped before the row's mean is taken: seq_mean is the only level"
    return ""


def compositions() -> Iterator[tuple[str, str, str]]:
    """Yield every possible ratio level, bound and aggregation."""
    for ratio_level, bound, aggregation in product(*AXES.values()):
        if not impossible(ratio_level, bound):
            yield ratio_level, bound, aggregation


VARIANTS: tuple[Algorithm, ...] = (
    composed("gspo", aggregation="token-mean"),  # as verl aggregates by default
    composed("cispo", aggregation="row-mean"),
    composed("dr_grpo", aggregation="width"),  # what is divided by where no L_max is configured
    replace(composed("rloo", bound="clip"), known_as={"": "TRL RLOOTrainer"}),
)
"""Presets with another choice that libraries ship."""


def taking(constant: str) -> tuple[str, ...]:
    """Return the policy losses that take a constant, such as `epsilon_low`."""
    return tuple(row.name for row in ALGORITHMS.values() if constant in row.constants)


def without(constant: str) -> tuple[str, ...]:
    """Return the policy losses that do not take a constant."""
    return tuple(name for name in ALGORITHMS if name not in taking(constant))


def listed(names: Iterable[str], last: str = "and") -> str:
    """Return names as a text lists them: a, b and c."""
    *first, end = names
    return f"{', '.join(first)} {last} {end}" if first else end
