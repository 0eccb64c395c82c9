"""Does the gradient of a loss reach only the logits that predict completion tokens?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from gates.families.loss.calls import BASE
from gates.families.loss.gates.definition import LIMIT_BECAUSE
from gates.families.loss.op import LOSS_FROM_LOGITS
from gates.families.units import FLOAT32_U
from gates.model import Array, Bound, Case, Draw, Evidence, Probe, Trial
from gates.registry import gate
from gates_reference.algorithms import ALGORITHMS
from gates_reference.oracle import logprobs, losses

VOCABULARY = 24
ROWS = 6
OTHERS = tuple(  # the other presets whose loss is not another one's with one advantage for a row
    row.name for row in ALGORITHMS.values() if row.name != "grpo" and row.ratio_level != "seq_mean_token"
)


OF_MORE = frozenset(name for name in OTHERS if not ALGORITHMS[name].constants.keys() <= BASE.keys())


def _make(
    rng: np.random.Generator, temperature: float, beta: float, algorithm: str = "grpo", *, on_policy: bool = False
) -> dict[str, Any]:
    row = ALGORITHMS[algorithm]
    constants = {**row.constants, **({"micro_batches": [2, ROWS - 2]} if "micro_batches" in row.constants else {})}
    drift = 0.2 if row.ratio_level == "token" else 0.02  # a product of a row's ratios stays near 1
    prompts, lengths = np.array([3, 7, 5, 1, 6, 2]), np.array([5, 2, 6, 7, 1, 4])
    rows, width = prompts.size, int(lengths.max())
    ids = rng.integers(0, VOCABULARY, (rows, int((prompts + lengths).max()))).astype(np.int32)
    logits = rng.normal(0.0, 2.0, (*ids.shape, VOCABULARY)).astype(np.float32)
    policy = logprobs.completion_logprobs(logits, ids, prompts, lengths, width, temperature=temperature)
    scored = np.arange(width) < lengths[:, None]
    noise = [np.where(scored, policy, -1.5) + rng.normal(0.0, s, policy.shape) for s in (drift, 0.4)]
    return {
        "logits": logits,
        "ids": ids,
        "prompt_lengths": prompts,
        "lengths": lengths,
        "old": None if on_policy else noise[0].astype(np.float32),
        "reference": noise[1].astype(np.float32) if beta else None,
        "advantages": np.array([0.9, -0.3, -0.6, 1.2, -0.5, -0.7], np.float32),
        "temperature": temperature,
        "algorithm": algorithm,
        **BASE,
        **constants,
        "beta": beta,
        "kl_ratio": "none" if beta else None,
    }


def _definition(x: Mapping[str, Any]) -> tuple[Array, losses.PolicyLoss, Array]:
    """Return the log-probs of completions, their loss, and the gradient by the logits."""
    width = int(x["lengths"].max())
    rows = x["logits"], x["ids"], x["prompt_lengths"], x["lengths"]
    policy = logprobs.completion_logprobs(*rows, width, temperature=x["temperature"])
    loss = losses.policy_loss(
        policy,
        old=x["old"],
        reference=x["reference"],
        advantages=x["advantages"],
        mask=np.arange(width) < x["lengths"][:, None],
        algorithm=x["algorithm"],
        kl_estimator="k3" if x["beta"] else None,
        **{name: x[name] for name in {*BASE, *ALGORITHMS[x["algorithm"]].constants}},
    )
    return policy, loss, logprobs.logits_gradient(*rows, loss.gradient, temperature=x["temperature"])


def _case(name: str, *, quick: bool = False, temperature: float = 1.0, beta: float = 0.0, **changes: Any) -> Case:
    ratio = "on-policy" if changes.get("on_policy") else "off-policy"
    conventions = {"algorithm": changes.get("algorithm", "grpo"), "ratio": ratio}
    make = partial(_make, temperature=temperature, beta=beta, **changes)
    return Case(name, make, quick=quick, conventions=conventions)


def _preconditions(t: Draw) -> Iterator[Evidence]:
    yield t.precondition("different prompt lengths", np.unique(t.inputs["prompt_lengths"]).size, ">=", 4)
    *_, gradient = _definition(t.inputs)
    largest = float(np.abs(gradient).max())
    yield t.precondition("largest |∂loss/∂logit| of the definition", largest, ">", 1e-3)


@gate(
    "loss.prompt-gets-no-gradient",
    level="definition",
    name="policy_loss[from logits]",
    question="From logits to loss: is the gradient the definition's where completion tokens are predicted, and 0 elsewhere?",
    why="A shift by one trains on the last prompt token or past the end; with one shared prompt it even cancels out.",
    ops=(LOSS_FROM_LOGITS,),
    cases=(
        _case("prompts", quick=True),
        _case("temperature", temperature=0.7),
        _case("with-kl", beta=0.04),
        _case("on-policy", on_policy=True),
        *(_case(f"{name}-prompts", algorithm=name, temperature=0.7, quick=name in OF_MORE) for name in OTHERS),
    ),
    bounds={
        "largest |gradient| at logits that predict no completion token": Bound(
            "exact", "no such logit is an input of the loss", 0.0
        ),
        "log-prob error in 2u·S": Bound(
            "derived",
            "float32 of x/τ − logsumexp: 4 roundings of |x − M|/τ and log Σ, one per summand of the vocabulary, "
            "in units of 2u·(|x_id − M|/τ + max(1, log Σ))",
            4.0 + VOCABULARY / 2,
            "precision",
        ),
        "gradient error in 2u·S": Bound(
            "derived", LIMIT_BECAUSE + "; softmax adds the log-probs' error", lambda t: t.facts["limit"], "precision"
        ),
        "loss error in 2u·S": Bound(
            "derived", LIMIT_BECAUSE + "; exp carries the log-probs' error", lambda t: t.facts["limit"], "precision"
        ),
    },
    requires=_preconditions,
    probes=(Probe("loss_from_logits", ("loss", "gradient")),),
)
def prompt_gets_no_gradient(t: Trial) -> Iterator[Evidence]:
    """Compare the subject's path from logits to loss, over ragged prompts, with the chain rule."""
    x = dict(t.inputs)
    scored = logprobs.completion_slots(x["prompt_lengths"], x["lengths"], x["ids"].shape[1])
    width = int(x["lengths"].max())
    mask = np.arange(width) < x["lengths"][:, None]
    policy, loss, gradient = _definition(x)
    got = t.got(LOSS_FROM_LOGITS, **x)
    t.facts["limit"] = 8.0 + _size(policy, x, mask) + width + VOCABULARY
    silent = np.ones(x["ids"].shape, bool)
    silent[:, :-1] = ~scored
    stray = np.abs(got["gradient"])[silent]
    yield t.number(
        "largest |gradient| at logits that predict no completion token",
        float(stray.max()),
        "<=",
        where=_location(got, silent),
    )
    unit, limits = 2 * FLOAT32_U, t.textbook(LOSS_FROM_LOGITS, **x)
    scored_only = np.where(mask, got["logprobs"], 0.0)
    yield from t.agrees("log-prob error in 2u·S", scored_only, policy, limits["logprobs"], scale=unit * _scale(x, mask))
    yield from t.agrees("loss error in 2u·S", got["loss"], loss.loss, limits["loss"], scale=unit * loss.loss_scale)
    scoring = np.where(silent[..., None], 0.0, got["gradient"])  # the silent positions have their own claim
    scale = unit * float(loss.gradient_scale.max()) / x["temperature"]
    yield from t.agrees("gradient error in 2u·S", scoring, gradient, limits["gradient"], scale=scale)


def _size(policy: Array, x: dict[str, Any], mask: Array) -> float:
    others = [policy - other for other in (x["old"], x["reference"]) if other is not None]
    return float(max(np.abs(np.where(mask, value, 0.0)).max() for value in (policy, *others)))


def _scale(x: dict[str, Any], mask: Array) -> Array:
    spread = float(x["logits"].max() - x["logits"].min()) / x["temperature"]
    return np.full(mask.shape, spread + max(1.0, float(np.log(VOCABULARY))))


def _location(got: dict[str, Any], silent: Array) -> str:
    stray = np.abs(got["gradient"]).max(axis=-1) * silent
    row, position = np.unravel_index(int(np.argmax(stray)), stray.shape)
    return f"row {row}, position {position}"
