"""The template filled in for a small NumPy library: REINFORCE without old log-probs, rewards less their mean, k2.

    gates check --subject tests/honest/numpy_template_policy_gradient.py

Gates loads this file in a process of its own, in this interpreter or in the one that `--python` names. Nothing of Gates
is needed there: only NumPy and your library. Fill in what your library has, by calling it; repair nothing
here, or the repair is judged. Delete the arguments with a default that your code does not have: a case that needs one
is `unsupported` then, as is what raises NotImplementedError; neither is ever a pass. `gates ops` lists every op.
"""

from __future__ import annotations

from typing import Any

import numpy as np

VERSIONS: dict[str, str] = {"numpy": np.__version__}  # shown in results; add your library's
# By a gate's name (`gates explain GATE` ends with it) where your documentation says that yours differs, such as
# "policy_loss[grpo]": "README, section Loss". A failure there is shown as `departs`; it still fails the run.
DEPARTURES_DOCUMENTED: dict[str, str] = {}
OPS: dict[str, Any] = {}
CONVENTIONS: dict[str, dict[str, tuple[Any, ...]]] = {}


def provides(op: str, **conventions: tuple[Any, ...]) -> Any:
    """Declare that a function is an op, with the choices that it has: a case that needs another one is `unsupported`.

    A convention that is not named is asked in every choice, but those that are asked only of a subject that declares
    them: their lines say so. For one call, `raise NotImplementedError("why")` says `unsupported` too.
    """

    def register(function: Any) -> Any:
        if op in OPS:
            raise ValueError(f"{op} is provided twice")
        OPS[op], CONVENTIONS[op] = function, conventions
        return function

    return register


def pad_like(values, policy):
    """Repeat the number of a row along its tokens."""
    return values if values.ndim == 2 else np.repeat(values[:, None], policy.shape[1], axis=1)


@provides("policy_loss", algorithm=("reinforce",))
def policy_loss(*, policy, advantages, algorithm, mask=None):
    """−mean over rows of the mean over tokens of A · log π."""
    if mask is None:
        mask = np.ones(policy.shape, bool)
    counts = mask.sum(axis=1)
    weights = np.zeros_like(policy)
    for row, count in enumerate(counts):
        if count:
            weights[row, mask[row]] = 1.0 / (count * len(counts))
    gradient = -pad_like(advantages, policy) * weights
    return {"loss": (gradient[mask] * policy[mask]).sum(), "gradient": gradient}


@provides("group_advantages", scale=("none",), baseline=("mean",))
def group_advantages(*, rewards, group_size):
    """R − mean of its group."""
    advantages = np.empty_like(rewards)
    for start in range(0, len(rewards), group_size):
        group = rewards[start : start + group_size]
        advantages[start : start + group_size] = group - group.mean()
    return {"advantages": advantages}


@provides("token_kl", estimator=("k2",))
def token_kl(*, policy, reference):
    """Half the squared log-ratio."""
    return {"kl": 0.5 * np.square(policy - reference)}


@provides("importance_ratio", level=("seq_sum",))
def importance_ratio(*, policy, level, old=None, mask=None):
    """π(y) / π_old(y) of whole completions."""
    return {"ratio": np.exp(np.sum(policy - old, axis=1, where=True if mask is None else mask))}
