"""The algorithms of this repository by name: one row each, from which names, cases of gates and texts are made.

The formulas are not here. The oracle, the NumPy baseline, the MLX trainer and the Rust kernels each keep their own, so that a
wrong row cannot be wrong on both sides of a comparison; tests/consistency compares their names with this table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, TypeVar


@dataclass(frozen=True, slots=True, kw_only=True)
class Algorithm:
    """A policy loss.

    Attributes:
        name: what configurations, ops and kernels call it.
        title: what its paper calls it.
        source: the paper with its equation, or the library that the name is of.
        loss: the formula in one line, as the question of its gate shows it.
        level: whose ratio r it takes: of the token, the row's geometric mean, or the row's product.
        by_row: whether a row has one advantage and one off-policy weight, instead of one for each token.
        clip: what bounds the ratio: "ratio" from both sides (then δ may bound it once more), "log-ratio" in nats, "cap"
            from above as a constant, "gate" smoothly; None: nothing.
        aggregation: what a token weighs, in the words of `reference.trainer.algorithms.aggregation`.
        kl: whether a KL may stand in the loss; RLOO has it in the reward.
        constants: the constants that `policy_loss` takes for it, each with the value at which gates judge it.
    """

    name: str
    title: str
    source: str
    loss: str
    level: Literal["token", "seq_mean", "seq_sum"] = "token"
    by_row: bool = False
    clip: Literal["ratio", "log-ratio", "cap", "gate"] | None = "ratio"
    aggregation: Literal["row-mean", "row-sum", "constant", "global", "micro-batch"] = "row-mean"
    kl: bool = True
    constants: Mapping[str, Any]

    @property
    def gate(self) -> str:
        """The gate that compares it with its definition."""
        return f"loss.{self.name.replace('_', '-')}.matches-definition"

    @property
    def paper(self) -> str:
        """The source without its equation."""
        return self.source.partition(" eq.")[0]

    @property
    def two_sided(self) -> bool:
        """Whether it knows δ, the second bound on ratios under a negative advantage."""
        return self.clip == "ratio"

    @property
    def mean_ratio(self) -> bool:
        """Whether the geometric mean of a row's ratios is clipped: few rows leave a range of 0.2, so theirs is narrower."""
        return self.level == "seq_mean" and self.clip == "ratio"


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


_TOKEN = {"epsilon_low": 0.2, "epsilon_high": 0.2}
_MEAN = {"epsilon_low": 0.03, "epsilon_high": 0.04}

ALGORITHMS = _by_name(
    Algorithm(
        name="grpo",
        title="GRPO",
        source="arXiv 2402.03300 eq. 3",
        loss="mean_i(Σ_t m·l / n_i)",
        constants=_TOKEN,
    ),
    Algorithm(
        name="dapo",
        title="DAPO",
        source="arXiv 2503.14476 eq. 8",
        loss="Σ m·l / Σ m with ε_low 0.2, ε_high 0.28",
        aggregation="global",
        constants={"epsilon_low": 0.2, "epsilon_high": 0.28, "dapo_denominator": "global"},
    ),
    Algorithm(
        name="bnpo-trl",
        title="BNPO",
        source="TRL's loss_type bnpo",
        loss="mean over micro-batches of Σ m·l / Σ m",
        aggregation="micro-batch",
        constants={**_TOKEN, "micro_batches": [4, 4]},
    ),
    Algorithm(
        name="dr_grpo",
        title="Dr. GRPO",
        source="arXiv 2503.20783",
        loss="Σ m·l / (B · L_max), L_max the configured constant",
        aggregation="constant",
        constants={**_TOKEN, "max_length": 32},
    ),
    Algorithm(
        name="gspo",
        title="GSPO",
        source="arXiv 2507.18071 eq. 5",
        loss="mean_i l_i with r_i = exp(Σ m·D / n_i)",
        level="seq_mean",
        by_row=True,
        constants=_MEAN,
    ),
    Algorithm(
        name="gspo-token",
        title="GSPO-token",
        source="arXiv 2507.18071 eq. 13",
        loss="mean_i(Σ_t m·l / n_i), r = stop(r_i)·exp(lp − stop(lp)), A per token",
        level="seq_mean",
        constants=_MEAN,
    ),
    Algorithm(
        name="rloo",
        title="RLOO",
        source="arXiv 2402.14740",
        loss="−mean_i r_i·A_i with r_i = exp(Σ m·D)",
        level="seq_sum",
        by_row=True,
        clip=None,
        kl=False,
        constants={},
    ),
    Algorithm(
        name="cispo",
        title="CISPO",
        source="arXiv 2506.13585 eq. 4",
        loss="−Σ m·stop(min(r, c))·A·lp / Σ m, c = 1 + ε_high or ε_high itself",
        clip="cap",
        aggregation="global",
        constants={"epsilon_high": 0.28, "cispo_bound": "relative", "dapo_denominator": "global"},
    ),
    Algorithm(
        name="sapo",
        title="SAPO",
        source="arXiv 2511.20347",
        loss="−mean_i(Σ_t m·(4/τ)·σ(τ(r − 1))·A / n_i), τ by the sign of A",
        clip="gate",
        constants={"sapo_temperature_positive": 1.0, "sapo_temperature_negative": 1.05},
    ),
    Algorithm(
        name="gmpo",
        title="GMPO",
        source="arXiv 2507.20673 eq. 4",
        loss="−mean_i exp(mean_t q)·A, q = min(D, ε_high) or max(D, −ε_low) by the sign of A",
        level="seq_mean",
        by_row=True,
        clip="log-ratio",
        constants={"epsilon_low": 0.2, "epsilon_high": 0.3},
    ),
    Algorithm(
        name="luspo",
        title="LUSPO",
        source="arXiv 2602.05261",
        loss="mean_i n_i·l_i with GSPO's ratio, the KL summed over tokens",
        level="seq_mean",
        by_row=True,
        aggregation="row-sum",
        constants=_MEAN,
    ),
    Algorithm(
        name="reinforce",
        title="REINFORCE",
        source="Williams 1992",
        loss="−mean_i(Σ_t m·A·lp / n_i)",
        clip=None,
        constants={},
    ),
    Algorithm(
        name="reinforce++",
        title="REINFORCE++",
        source="arXiv 2501.03262",
        loss="Σ m·l / Σ m",
        aggregation="global",
        kl=False,
        constants={**_TOKEN, "dapo_denominator": "global"},
    ),
    Algorithm(
        name="ppo",
        title="PPO",
        source="arXiv 1707.06347 eq. 7",
        loss="Σ m·l / Σ m with δ = 3",
        aggregation="global",
        constants={**_TOKEN, "delta": 3.0, "dapo_denominator": "global"},
    ),
    Algorithm(
        name="vespo",
        title="VESPO",
        source="arXiv 2602.10693",
        loss="−Σ m·stop(φ(W_i))·A_i·lp / Σ m, W_i = exp(Σ m·D)",
        level="seq_sum",
        by_row=True,
        clip=None,
        aggregation="global",
        constants={
            "vespo_k_positive": 2.0,
            "vespo_lambda_positive": 3.0,
            "vespo_k_negative": 3.0,
            "vespo_lambda_negative": 2.0,
            "dapo_denominator": "global",
        },
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


def taking(constant: str) -> tuple[str, ...]:
    """Return the policy losses that take a constant, such as `epsilon_low`."""
    return tuple(one.name for one in ALGORITHMS.values() if constant in one.constants)


def without(constant: str) -> tuple[str, ...]:
    """Return the policy losses that do not take a constant."""
    return tuple(name for name in ALGORITHMS if name not in taking(constant))


def listed(names: Iterable[str], last: str = "and") -> str:
    """Return names as a text lists them: a, b and c."""
    *first, end = names
    return f"{', '.join(first)} {last} {end}" if first else end
