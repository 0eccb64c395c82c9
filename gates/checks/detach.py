"""Does a loss's gradient flow through the policy alone, and do the prompt's logits stay out of loss and gradient?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from gates import cases
from gates.checks import gradient, loss_cases, loss_laws
from gates.checks.ops import LOSS_FROM_LOGITS, POLICY_LOSS, UNIT
from gates.model import Array, Bound, Case, Evidence, Probe, Trial
from gates.registry import gate
from reference.oracle import logprobs


def _on_policy(rng: np.random.Generator, algorithm: str, beta: float) -> Mapping[str, Any]:
    """Give old as None, and as the policy's own numbers: a constant of the same value; broken, as another policy's."""
    changes = {"beta": beta} if beta else {}
    data: dict[str, Any] = {"by_token": True} if algorithm == "gspo-token" else {}
    given = loss_cases.make(rng, algorithm, {"spread": 0.1, **data}, changes)
    left, right = {**given, "old": None}, {**given, "old": given["policy"].copy()}
    return {"left": left, "right": right, "broken": {"right": {"old": given["old"]}}}


def _cases() -> Iterator[Case]:
    for algorithm in loss_cases.ALGORITHMS:
        for beta in (0.0, 0.3):
            if beta and algorithm == "rloo":
                continue
            name = f"{algorithm}-{'kl' if beta else 'plain'}"
            changes: dict[str, Any] = {"beta": beta} if beta else {}
            conventions = loss_cases.case(algorithm, name, **changes).conventions
            on_policy = partial(_on_policy, algorithm=algorithm, beta=beta)
            made = partial(cases.with_signal, make=on_policy, signals=loss_laws.signals)
            yield Case(name, made, quick=not beta, conventions=conventions)


@gate(
    "loss.old-is-a-constant",
    name="policy_loss[detach]",
    question="On-policy, is the gradient that of a constant `old` with the same numbers, alive and the same?",
    why="An `old` that keeps its graph cancels the policy in every ratio: the loss looks right and nothing is learned.",
    ops=(POLICY_LOSS,),
    cases=tuple(_cases()),
    bounds=loss_laws.BOUNDS,
    probes=(Probe("policy_loss", ("loss", "gradient"), lambda inputs: inputs["old"] is None),),
)
def old_is_a_constant(t: Trial) -> Iterator[Evidence]:
    """Compare `old` left to the subject with `old` given as numbers; another policy's numbers must differ."""
    yield from loss_laws.hold(t)


def _poisoned(rng: np.random.Generator, temperature: float, beta: float) -> dict[str, Any]:
    return gradient._make(rng, temperature, beta)  # the logits of the gate that knows which ones count


@gate(
    "loss.prompt-does-not-matter",
    name="policy_loss[prompt]",
    question="Do loss and gradient keep every bit when the logits at prompt positions and past the end are others?",
    why="A prompt that enters the loss rewards a model for what the user wrote, and no loss curve says so.",
    ops=(LOSS_FROM_LOGITS,),
    cases=(
        Case("plain", partial(_poisoned, temperature=1.0, beta=0.0), quick=True, conventions={"algorithm": "grpo"}),
        Case(
            "tempered-kl", partial(_poisoned, temperature=0.7, beta=0.04), quick=True, conventions={"algorithm": "grpo"}
        ),
    ),
    bounds={
        "elements of loss and gradient that change": Bound("exact", "no such logit is an input of the loss", 0.0),
    },
)
def prompt_does_not_matter(t: Trial) -> Iterator[Evidence]:
    """Replace the logits that score no completion token by others, and once one that does."""
    x = dict(t.inputs)
    scored = logprobs.completion_slots(x["prompt_lengths"], x["lengths"], x["ids"].shape[1])
    silent = np.ones(x["ids"].shape, bool)
    silent[:, :-1] = ~scored
    yield t.signal("positions that score no completion token", int(silent.sum()), ">=", 8)
    other = np.where(silent[..., None], np.float32(3.0) - x["logits"][:, :, ::-1], x["logits"]).astype(np.float32)
    clean, moved = t.got(LOSS_FROM_LOGITS, **x), t.got(LOSS_FROM_LOGITS, **{**x, "logits": other})
    changed = int(not _same(clean["loss"], moved["loss"])) + int(np.sum(~_same(clean["gradient"], moved["gradient"])))
    where = f"loss {float(moved['loss']):.6g} instead of {float(clean['loss']):.6g}"
    yield t.number("elements of loss and gradient that change", changed, "<=", where=where)
    last = int(x["prompt_lengths"][0]) - 1  # its logits score the first completion token of row 0
    counted = x["logits"].copy()
    counted[0, last] = counted[0, last, ::-1]
    found = t.got(LOSS_FROM_LOGITS, **{**x, "logits": counted})
    step = float(np.abs(found["gradient"] - clean["gradient"]).max()) / float(UNIT["float32"])
    yield t.control("change of the gradient by the last prompt position in u", step, ">=", 1e3, "it scores a token")


def _same(a: Any, b: Any) -> Array:
    x, y = np.asarray(a), np.asarray(b)
    return np.asarray((x == y) & np.isfinite(y))
