"""What a call costs when there is next to nothing to compute."""

from __future__ import annotations

import numpy as np

from benches.versus import proof
from benches.versus.model import Row, Side
from reference.oracle import advantages, kl, logprobs

OP = "call overhead"
GOAL_US = 0.4
POLICY, REFERENCE = (np.log(np.array(p, np.float32)) for p in ([0.5, 0.25, 0.125, 0.125], [0.25, 0.25, 0.25, 0.25]))
REWARDS = np.array([1.0, 0.0, 0.5, 2.0])
LENGTHS = np.array([3, 5, 2, 4])
LOGITS, IDS = np.array([[1.0, 2.0, 0.5, -1.0]], np.float32), np.array([1])
TRL = {"scale": "group", "ddof": 1, "eps": 1e-4, "eps_mode": "add", "baseline": "mean"}


def rows():
    """A call of every function that takes an array or two, with its keywords at their defaults."""
    return [
        _row("group_advantages", "group_advantages(rewards, 4)", _advantages, rewards=REWARDS),
        _row("token_kl", 'token_kl(policy, reference, estimator="k3")', _k3, policy=POLICY, reference=REFERENCE),
        _row(
            "token_kl",
            'token_kl(policy, reference, estimator="k3", out=out)',
            _k3,
            policy=POLICY,
            reference=REFERENCE,
            out=np.empty_like(POLICY),
        ),
        _row("full_kl", "full_kl(policy, reference)", _full_kl, policy=POLICY, reference=REFERENCE),
        _row(
            "importance_ratio",
            'importance_ratio(policy, old, level="token")',
            _ratio,
            policy=POLICY[None],
            old=REFERENCE[None],
        ),
        _row("selective_log_softmax", "selective_log_softmax(logits, ids)", _logprobs, logits=LOGITS, ids=IDS),
        _row("pack_sequences", "pack_sequences(lengths, 8)", _packed, lengths=LENGTHS),
    ]


def _row(function, statement, verify, **names):
    def ours():
        import rlkernels

        return Side(statement, {function: getattr(rlkernels, function), **names}, verify)

    return Row(OP, statement, "", ours, needs=(function,), goal=GOAL_US, quick=True)


def _advantages(got):
    want, scale = (f(REWARDS, 4, **TRL) for f in (advantages.group_advantages, advantages.advantage_scale))
    return proof.ours("advantages", "float64", want, scale)(got)


def _k3(got):
    want = kl.token_kl(POLICY, REFERENCE, estimator="k3", reduction="none")
    return proof.ours("k3", "float32", want, np.abs(want))(got)


def _full_kl(got):
    want = kl.full_kl(POLICY, REFERENCE)
    scale = np.sum(np.exp(POLICY.astype(np.float64)) * np.abs(POLICY.astype(np.float64) - REFERENCE))
    return proof.ours("full KL", "float32", want, scale)(got)


def _ratio(got):
    want = np.exp(POLICY.astype(np.float64) - REFERENCE)[None]
    return proof.ours("ratio", "float32", want, want)(got)


def _logprobs(got):
    want, scale = (f(LOGITS, IDS, temperature=1.0) for f in (logprobs.selective_log_softmax, logprobs.logprob_scale))
    return proof.ours("log-probs", "float32", want, scale)(got)


def _packed(got):
    bins = [got[0][start:end].tolist() for start, end in zip(got[1], got[1][1:], strict=False)]
    return [proof.equal("pack_sequences: bins are {5, 3} and {4, 2}", bins == [[1, 0], [3, 2]], 1, "by hand")]
