"""The format of a recorded step: its tensors, its settings and the metrics that have a definition.

docs/recorded-steps.md shows these tables; a test compares them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gates_reference.algorithms import ALGORITHMS, AXES, listed
from gates_reference.oracle.advantages import BASELINES, EPS_MODES, SCALES
from gates_reference.oracle.aggregation import DAPO_DENOMINATORS
from gates_reference.oracle.definitions.kl import ESTIMATORS
from gates_reference.oracle.loss_terms import CISPO_BOUNDS, KL_RATIOS
from gates_reference.oracle.losses import KL_AGGREGATIONS
from gates_reference.oracle.ratio import CORRECTIONS

VERSION = "1"
KEY = "recorded_step"  # metadata key of the format version
TRACE = "trace"  # key and prefix of what a trace adds to a recorded step (gates.replay)
IGNORED = ("format", TRACE)  # metadata keys: the first is what libraries of safetensors write

FLOATS = ("F32", "F64")
INTEGERS = ("I64", "I32", "I16", "I8", "U8")
MASKS = ("BOOL", *INTEGERS, "F32", "F64")
SLOTS, ROWS, ONE = "(B, T)", "(B,)", "()"
METRIC = "metric."


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor of the file: its possible shapes and dtypes, and its meaning."""

    shapes: tuple[str, ...]
    dtypes: tuple[str, ...]
    meaning: str


TENSORS: Mapping[str, Tensor] = {
    "policy": Tensor((SLOTS,), FLOATS, "log-probs of the sampled tokens under the policy that is trained"),
    "old": Tensor((SLOTS,), FLOATS, "log-probs under the policy at the time of the rollout"),
    "reference": Tensor((SLOTS,), FLOATS, "log-probs under the reference policy"),
    "sampling": Tensor((SLOTS,), FLOATS, "log-probs as the sampler recorded them; NaN where it recorded none"),
    "mask": Tensor((SLOTS,), MASKS, "1 on the tokens that are trained, else 0; may have holes. Absent: every slot"),
    "rewards": Tensor((ROWS,), FLOATS, "reward of each row; NaN where it was not scored"),
    "groups": Tensor((ROWS,), INTEGERS, "an id for each prompt, equal for its rows; or the setting `group_size`"),
    "advantages": Tensor((ROWS, SLOTS), FLOATS, "advantages as the loss used them"),
    "weights": Tensor((ROWS, SLOTS), FLOATS, "off-policy weights as the loss used them"),
    "entropy": Tensor((SLOTS,), FLOATS, "entropy of the policy at each token"),
    "loss": Tensor((ONE,), FLOATS, "the loss that was minimised"),
    "auxiliary_loss": Tensor(
        (ONE,), FLOATS, "what `loss` holds beside the policy loss, with its weight, such as a router's auxiliary loss"
    ),
    "row_losses": Tensor((ROWS,), FLOATS, "what each row adds to the loss; together they are the loss"),
    "gradient": Tensor((SLOTS,), FLOATS, "∂loss/∂policy"),
}
SCALARS = tuple(name for name, tensor in TENSORS.items() if tensor.shapes == (ONE,))
LIKE_POLICY = ("old", "reference", "sampling", "entropy", "gradient", "advantages", "weights")


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting: a "number", an "integer", "integers" with commas, "text", or one of `choices`."""

    kind: str
    meaning: str
    choices: tuple[str, ...] = ()


def _choosing(axis: str, word: str) -> str:
    names = listed(f"`{row.name}`" for row in ALGORITHMS.values() if getattr(row, axis) == word)
    return f"{axis} `{word}` ({names})"


SETTINGS: Mapping[str, Setting] = {
    "algorithm": Setting("word", "the loss by name; absent: it is identified", tuple(ALGORITHMS)),
    "ratio": Setting("word", "`on-policy` says that the step has no `old`: r = 1", ("on-policy",)),
    "epsilon_low": Setting("number", "the ratio is clipped below 1 − ε_low"),
    "epsilon_high": Setting("number", "the ratio is clipped above 1 + ε_high"),
    "delta": Setting("number", "second bound on the ratio where A < 0"),
    "beta": Setting("number", "weight of the KL in the loss"),
    "kl_estimator": Setting("word", "of that KL", tuple(ESTIMATORS)),
    "kl_ratio": Setting("word", "what multiplies that KL", tuple(KL_RATIOS)),
    "kl_clamp": Setting("number", "largest |KL estimate| of a token"),
    "kl_aggregation": Setting("word", "how that KL is averaged; absent: as the rest of the loss", KL_AGGREGATIONS),
    **{axis: Setting("word", "another choice than the algorithm's", tuple(words)) for axis, words in AXES.items()},
    "count_eps": Setting(
        "number", "ε added to every count of tokens by which a mean of token losses divides; absent: none"
    ),
    "max_length": Setting("integer", f"L_max of {_choosing('aggregation', 'constant')}"),
    "micro_batches": Setting(
        "integers", f"rows of each micro-batch of {_choosing('aggregation', 'micro-batch')}, such as `4,4`"
    ),
    "dapo_denominator": Setting("word", f"of {_choosing('aggregation', 'token-mean')}", tuple(DAPO_DENOMINATORS)),
    "tokens_in_step": Setting("number", "tokens that the `trl` denominator divides by"),
    "cispo_bound": Setting(
        "word", f"c = 1 + ε_high or c = ε_high, of {_choosing('bound', 'cap')}", tuple(CISPO_BOUNDS)
    ),
    "sapo_temperature_positive": Setting("number", f"τ of {_choosing('bound', 'gate')} where A > 0"),
    "sapo_temperature_negative": Setting("number", f"τ of {_choosing('bound', 'gate')} elsewhere"),
    "vespo_k_positive": Setting("number", f"k of {_choosing('bound', 'taper')} where A ≥ 0"),
    "vespo_lambda_positive": Setting("number", f"λ of {_choosing('bound', 'taper')} where A ≥ 0"),
    "vespo_k_negative": Setting("number", f"k of {_choosing('bound', 'taper')} elsewhere"),
    "vespo_lambda_negative": Setting("number", f"λ of {_choosing('bound', 'taper')} elsewhere"),
    "correction": Setting("word", "off-policy correction by `sampling`", tuple(CORRECTIONS)),
    "correction_level": Setting("word", "of a token or of the row's product", ("token", "seq_sum")),
    "correction_low": Setting("number", "c_min; absent: none"),
    "correction_high": Setting("number", "c_max"),
    "entropy_bonus": Setting("number", "c, where `loss` holds −c times the mean of `entropy`"),
    "entropy_mean": Setting(
        "word", "that mean: over tokens, or averaged like the loss; absent: `tokens`", ("tokens", "loss")
    ),
    "empty_rows": Setting(
        "word",
        "whether rows, prompts and micro-batches without tokens count in means; absent: `counted`",
        ("counted", "left-out"),
    ),
    "group_size": Setting("integer", "rows of each prompt, one after the other"),
    "scale": Setting("word", "whose deviation divides the advantages; absent: it is identified", tuple(SCALES)),
    "ddof": Setting("integer", "0 or 1; not with `scale` none"),
    "eps": Setting("number", "ε of the advantages; not with `scale` none"),
    "eps_mode": Setting("word", "how ε enters; not with `scale` none", tuple(EPS_MODES)),
    "baseline": Setting("word", "what is subtracted from a reward", tuple(BASELINES)),
    "statistics": Setting(
        "word",
        "whether mean and deviation of the batch are over rows or, as in REINFORCE++, over tokens; absent: `rows`",
        ("rows", "tokens"),
    ),
    "name": Setting("text", "what reports call the step; absent: the file's name"),
}

METRICS: Mapping[str, str] = {
    "kl": "mean over tokens of the estimate (`kl_estimator`, else k3) of the KL to `reference`, before β",
    "entropy": "mean over tokens of `entropy`",
    "ppo_kl": "mean over tokens of old − policy",
    "ratio_mean": "mean over tokens of the ratio that the algorithm uses",
    "ratio_min": "the smallest of these ratios",
    "ratio_max": "the largest of these ratios",
    "outside_low": "share of tokens with r < 1 − ε_low",
    "outside_high": "share of tokens with r > 1 + ε_high",
    "clipped_low": "share of tokens with r < 1 − ε_low and A < 0",
    "clipped_high": "share of tokens with r > 1 + ε_high and A > 0",
    "clip_ratio": "the sum of both, TRL's `clip_ratio/region_mean` and verl's `pg_clipfrac`",
    "reward_mean": "mean of the scored rewards",
    "tokens": "number of tokens",
}
