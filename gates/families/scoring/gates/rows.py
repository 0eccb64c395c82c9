"""Does a row have the same scores alone and in a batch?"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from gates.families.rollout import runs
from gates.families.rollout.op import ROLLOUT, TOKEN_LOGITS
from gates.families.scoring.op import COMPLETION_LOGPROBS
from gates.model import Bound, Case, Evidence, Probe, Trial
from gates.registry import gate


@gate(
    "scoring.rows-do-not-see-each-other",
    level="law",
    name="completion_logprobs[one row]",
    question="Has a row the log-probs alone, and in another order, that it has in a padded batch?",
    why="Padding that is attended to, or positions that count it, tie a row's score to its neighbours' lengths.",
    ops=(ROLLOUT, TOKEN_LOGITS, COMPLETION_LOGPROBS),
    cases=(
        Case("qwen3-rows", runs.worded_inputs, proof=True, limit_s=60, model="qwen3", sample=runs.SAMPLE),
        *(
            Case(
                f"{family}-rows",
                partial(runs.worded_inputs, family=family),
                limit_s=120,
                model=family,
                sample=runs.SAMPLE,
            )
            for family in runs.FAMILIES
            if family != "qwen3_moe"  # in another batch it may legitimately choose other experts
        ),
    ),
    bounds={
        "|Δ log-prob| of a row alone and in the batch": Bound(
            "calibrated", f"{runs.NOISE}; one error each", lambda t: 2 * t.facts["E"]
        ),
        "|Δ log-prob| of the rows in another order": Bound(
            "calibrated", f"{runs.NOISE}; one error each", lambda t: 2 * t.facts["E"]
        ),
    },
    probes=(Probe("completion_logprobs", ("logprobs",), lambda inputs: len(inputs["tokens"]) == 1),),
)
def rows_do_not_see_each_other(t: Trial) -> Iterator[Evidence]:
    """Score a ragged batch, the same rows reversed, and every fifth row alone; another prompt must matter."""
    yield from runs.calibrate(t)
    run = runs.cut_at_ends(runs.slow(t, record_logits=False))
    batch = {**runs.scoring_batch(t, run), "adapter": None, "adapters_on": True, "temperature": 1.0}
    prompts, lengths = batch["prompt_tokens"], np.asarray(run["lengths"])
    yield t.precondition("different lengths of prompts", len({len(p) for p in prompts}), ">=", 3)
    yield t.precondition("different lengths of completions", np.unique(lengths).size, ">=", 2)
    whole = t.got(COMPLETION_LOGPROBS, **batch)["logprobs"]
    inside = np.arange(whole.shape[1]) < lengths[:, None]
    yield t.precondition("mean |log-prob|", float(np.abs(whole[inside]).mean()), ">=", 0.3)

    def score(rows: list[int], row_prompts: list[Any]) -> Any:
        part = {"prompt_tokens": row_prompts, "tokens": np.asarray(run["tokens"])[rows], "lengths": lengths[rows]}
        return t.got(COMPLETION_LOGPROBS, **{**batch, **part})["logprobs"]

    backwards = list(range(len(lengths)))[::-1]
    turned = score(backwards, [prompts[r] for r in backwards])[::-1]
    yield t.within("|Δ log-prob| of the rows in another order", turned, whole)
    for row in range(0, len(lengths), 5):
        quantity = "|Δ log-prob| of a row alone and in the batch"
        yield t.within(quantity, score([row], [prompts[row]])[0], whole[row], where=f"row {row}")
    longest = int(np.argmax(lengths))  # the effect of a prompt may be invisible in one or two tokens
    foreign = next(p for p in prompts if len(p) != len(prompts[longest]))
    moved = float(np.abs(score([longest], [foreign])[0] - whole[longest]).max())
    yield t.negative_control(
        "change of a row by another prompt", moved, ">=", 0.05, "scores that nothing moves agree everywhere"
    )
