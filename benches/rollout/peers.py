"""The other sides: a bare loop of forwards, mlx-lm's batch_generate, and trainers that run in environments of their own."""

from __future__ import annotations

import atexit
import tempfile
from functools import cache
from pathlib import Path

import numpy as np

from benches.rollout import processes, work
from benches.versus import proof
from benches.versus.model import Side

SAME = "every side generates the same number of tokens in every row"


def bare_loop(shape):
    """Forwards only: a cache of mlx-lm for all rows, one evaluation a step, no sampler and no bookkeeping."""
    import mlx.core as mx
    from mlx_lm.models.cache import make_prompt_cache

    def bare(model, prompts, steps):
        cache_ = make_prompt_cache(model)
        last = model(prompts, cache=cache_)[:, -1]
        mx.eval(last)
        tokens = mx.zeros((prompts.shape[0], 1), mx.int32)
        for _ in range(steps - 1):
            last = model(tokens, cache=cache_)[:, -1]
            mx.eval(last)
        return np.array(last)

    prompts = mx.array(np.repeat(shape.prompt_ids()[None], shape.samples, axis=0))
    names = {"bare": bare, "model": work.model(shape.model), "prompts": prompts, "steps": shape.tokens}

    def right(got):
        size = (shape.samples, work.VOCABULARY[shape.model])
        return [proof.equal("bare loop: logits that are not there", float(got.shape != size), 0.0, "one row each")]

    return Side("bare(model, prompts, steps)", names, right, "forwards and nothing else, the same token fed each time")


class _NoTokenizer:
    """What mlx-lm asks of a tokenizer: no end token, for lengths are given, and texts that cost nothing."""

    eos_token_ids = ()

    def decode(self, _):
        """Return no text."""
        return ""


def mlx_lm(shape):
    """The batched generation of mlx-lm, every row with its own limit."""
    from mlx_lm import batch_generate
    from mlx_lm.sample_utils import make_sampler

    names = {
        "batch_generate": batch_generate,
        "model": work.model(shape.model),
        "tokenizer": _NoTokenizer(),
        "prompts": [shape.prompt_ids().tolist()] * shape.samples,
        "lengths": [int(n) for n in shape.lengths()],
        "sampler": make_sampler(temp=work.TEMPERATURE, top_p=work.TOP_P),
        "rows": shape.samples,
    }
    statement = (
        "batch_generate(model, tokenizer, prompts, max_tokens=lengths, sampler=sampler, "
        "completion_batch_size=rows, prefill_batch_size=rows, return_token_ids=True)"
    )
    return Side(
        statement, names, lambda got: _lengths(shape, "mlx-lm", map(len, got.token_ids)), "no log-probs, no text"
    )


def mlxrl(shape):
    """The prefix-cached group rollout of mlxrl; rows end by an end token that is forced."""
    return _elsewhere(
        shape,
        "mlxrl",
        "log-probs; ends are forced in the logits; it starts a group again row by row after an early end",
    )


def mlx_lm_lora(shape):
    """`generate_grpo` of mlx-lm-lora, every row with its own limit."""
    return _elsewhere(
        shape,
        "mlx-lm-lora",
        "generate_grpo over mlx-lm's BatchGenerator, the prompt's cache shared; keeps no log-probs; batch_size is the group's, "
        "where train_grpo would give its prompts a step (1 by default) and so decode row by row",
    )


def mlx_tune(shape):
    """The rollout of mlx-tune's GRPOTrainer, every row with its own limit."""
    return _elsewhere(
        shape,
        "mlx-tune",
        "generate_with_log_probs row by row, the prompt's cache shared; log-probs that are not evaluated; "
        "its sampler has no top-p",
    )


def _elsewhere(shape, peer, note):
    """A peer in a process of its own environment."""
    run, version = processes.call(
        peer,
        {
            "name": f"{shape.model} {shape.name}",
            "arguments": work.arguments(shape.model),
            "weights": str(_weights(shape.model)),
            "prompt": shape.prompt_ids().tolist(),
            "lengths": shape.lengths().tolist(),
            "tokens": shape.tokens,
            "temperature": work.TEMPERATURE,
            "top_p": work.TOP_P,
            "seed": work.SEED,
        },
    )
    return Side("run()", {"run": run}, lambda got: _lengths(shape, peer, got), f"{version} in its own process: {note}")


def _lengths(shape, name, got):
    differ = sum(a != b for a, b in zip(got, shape.lengths().tolist(), strict=True))
    return [proof.equal(f"{name}: rows of another length", float(differ), 0.0, SAME)]


@cache
def _weights(name):
    """The model's weights as a file that another process reads; it goes with this process."""
    import mlx.core as mx
    from mlx.utils import tree_flatten

    folder = tempfile.TemporaryDirectory(prefix="gates-rollout-")
    atexit.register(folder.cleanup)
    path = Path(folder.name) / "model.safetensors"
    mx.save_safetensors(str(path), dict(tree_flatten(work.model(name).parameters())))
    return path
