"""Every row: our `run` against the bare loop, mlx-lm and the peers that generate completions for training."""

from __future__ import annotations

from benches.rollout import peers, work
from benches.rollout.work import Work
from benches.versus import proof
from benches.versus.model import Evidence, Row, Side

#: The goals of the plan, as ratios over the baseline: without early ends, at geometric lengths, with a long prompt.
BARE, LONG, LARGE = 1.0, 2.0, 2.0
GEOMETRIC = {"tiny": 1.4, "ten": 1.25}
PEERS = ("mlx-lm", "mlxrl", "mlx-lm-lora", "mlx-lm-lora whole group", "mlx-tune")
PROMPT, LONG_PROMPT = 8, 128
MOST_ROUNDS, FEWEST_ROUNDS = 30, 3  # a side takes from a tenth of a second to twenty
BUDGET_S = 6.0  # of one baseline and ours beside it: the whole table in about a quarter of an hour
CHECKED = 2  # rows that are scored by a full forward: a logit row of the large vocabulary is 600 KB
NEAR = 1e-4
WHY = "another route to the same float32 logits moves the distribution function by less than 1e-4"


def rows():
    """Small models at every G and T, a long prompt, and a vocabulary in which sampling is most of the work."""
    for name, goal in GEOMETRIC.items():
        for samples in (4, 16):
            for tokens in (64, 256):
                yield _row(Work(name, samples, tokens, PROMPT, early=False), "bare loop", BARE)
                yield from _geometric(Work(name, samples, tokens, PROMPT, early=True), goal)
            yield from _geometric(Work(name, samples, 64, LONG_PROMPT, early=True), LONG)
    yield from _geometric(Work("narrow", 16, 64, PROMPT, early=True), LARGE)


def _geometric(shape, goal):
    """Every peer with the goal; and how far we are from forwards alone, which bounds what any rollout can reach."""
    yield _row(shape, "bare loop", None)
    for peer in PEERS:
        yield _row(shape, peer, goal)


def _row(shape, baseline, goal):
    return Row(
        f"rollout {shape.model}",
        shape.name,
        baseline,
        lambda: _ours(shape),
        (lambda: getattr(peers, baseline.replace("-", "_").replace(" ", "_"))(shape),),
        goal=goal,
        quick=(shape.model, shape.samples, shape.tokens, shape.prompt) == ("tiny", 4, 64, PROMPT),
        most_rounds=MOST_ROUNDS,
        fewest_rounds=FEWEST_ROUNDS,
        budget_s=BUDGET_S,
        together=f"{shape.model} {shape.name}",
    )


def _ours(shape):
    from reference.trainer import rollout

    names = {"run": rollout.run, "model": work.model(shape.model), "request": work.request(shape)}
    return Side("run(model, request)", names, lambda got: _right(shape, got), "with three log-probs of every token")


def _right(shape, got):
    """Lengths are those that everybody has; tokens are the oracle's for the logits of one full forward."""
    import mlx.core as mx
    import numpy as np

    from reference.oracle import sampling as oracle

    lengths = shape.lengths()
    found = [proof.equal("ours: rows of another length", (got.lengths != lengths).sum(), 0, "identical lengths")]
    wrong = 0
    chosen = np.argsort(lengths)[-CHECKED:]
    for row in chosen:
        said = got.tokens[row, : lengths[row]]
        text = np.concatenate([shape.prompt_ids(), said])
        forward = work.model(shape.model)(mx.array(text[None]))[0, shape.prompt - 1 : -1]
        logits = np.array(forward.astype(mx.float32))
        u = oracle.uniforms(work.SEED, 0, np.zeros(len(said), int), np.full(len(said), row), np.arange(len(said)))
        right = oracle.admissible(said, logits, u, NEAR, **_sampler())
        wrong += int((~right).sum())
    why = f"{WHY}; {len(chosen)} rows, path {got.path}"
    return [*found, Evidence("ours: tokens that are not the oracle's for u near its own", float(wrong), "==", 0.0, why)]


def _sampler():
    return {
        "order": "hf",
        "temperature": work.TEMPERATURE,
        "top_p": work.TOP_P,
        "top_k": 0,
        "min_p": 0.0,
        "xtc_probability": 0.0,
        "xtc_threshold": 0.1,
        "xtc_coin": None,
        "repetition_penalty": 1.0,
        "history": None,
    }
