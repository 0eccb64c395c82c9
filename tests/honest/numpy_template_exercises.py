"""The template filled in with the exercises of a course: GAE, filters, packing, log-softmax, entropy, all in loops.

    gates check --subject tests/honest/numpy_template_exercises.py

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


@provides("gae")
def gae(*, rewards, values, gamma, lam):
    """Walk back from the last step; after it the value is 0."""
    advantages = np.zeros_like(rewards)
    for b in range(rewards.shape[0]):
        running = next_value = 0.0
        for t in range(rewards.shape[1] - 1, -1, -1):
            delta = rewards[b, t] + gamma * next_value - values[b, t]
            running = delta + gamma * lam * running
            advantages[b, t], next_value = running, values[b, t]
    return {"advantages": advantages}


@provides("selective_log_softmax", dtype=("float32", "float64"))
def selective_log_softmax(*, logits, ids, entropy=False):
    """The logit less the log of the sum of exponentials."""
    if ids.ndim != logits.ndim - 1:
        raise NotImplementedError("one id for each position")
    m = np.max(logits, axis=-1, keepdims=True)
    lse = m + np.log(np.sum(np.exp(logits - m), axis=-1, keepdims=True))
    answer = {"logprobs": np.take_along_axis(logits - lse, ids[..., None], -1)[..., 0]}
    if entropy:
        with np.errstate(invalid="ignore"):
            terms = np.exp(logits - lse) * (logits - lse)
        answer["entropy"] = -np.where(np.isneginf(logits), 0.0, terms).sum(-1)
    return answer


@provides("filtered_logprobs", order=("hf",))
def filtered_logprobs(*, logits, order, temperature=1.0, top_k=0):
    """Temperature and top-k: everything below the k-th largest logit goes."""
    if temperature == 0:
        raise NotImplementedError("no greedy decoding")
    scaled = logits / temperature
    if 0 < top_k < logits.shape[1]:
        kth = np.partition(scaled, -top_k, axis=1)[:, [-top_k]]
        scaled = np.where(scaled < kth, -np.inf, scaled)
    scaled = scaled - scaled.max(axis=1, keepdims=True)
    return {"logprobs": scaled - np.log(np.exp(scaled).sum(axis=1, keepdims=True))}


@provides("pack_sequences", strategy=("first-fit-decreasing",), over_long=("truncate",))
def pack_sequences(*, lengths, max_length, strategy, over_long):
    """Put each sequence, the longest first, into the first bin that has room."""
    lengths = np.minimum(lengths, max_length)
    bins, used = [], []
    for i in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        for b in range(len(bins)):
            if used[b] + lengths[i] <= max_length:
                break
        else:
            b = len(bins)
            bins.append([])
            used.append(0)
        bins[b].append(i)
        used[b] += lengths[i]
    flat = [i for members in bins for i in members]
    offsets = np.cumsum([0] + [len(members) for members in bins])
    share = sum(used) / (len(bins) * max_length) if bins else 1.0
    return {"indices": np.array(flat, int), "offsets": offsets, "efficiency": share}


@provides("keep_groups", convention=("total",))
def keep_groups(*, rewards, weights, group_size, convention, accuracy):
    """A group whose rewards are all the same teaches nothing."""
    total = (rewards * weights).sum(axis=1)
    groups = [total[i : i + group_size] for i in range(0, len(total), group_size)]
    return {"keep": np.array([group.min() != group.max() for group in groups])}


@provides("overlong_penalty")
def overlong_penalty(*, lengths, limit, buffer):
    """0, then a slope, then −1."""
    penalties = []
    for n in lengths:
        if n <= limit - buffer:
            penalties.append(0.0)
        elif n <= limit:
            penalties.append((limit - buffer - n) / buffer)
        else:
            penalties.append(-1.0)
    return {"penalty": np.array(penalties)}
