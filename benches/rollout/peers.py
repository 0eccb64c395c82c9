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
    """Forwards only: a cache of mlx-lm for the rows that live, one evaluation a step, no sampler and no bookkeeping.

    The prompt is prefilled once for rows that end early, and once for each row for rows that do not: that is what the
    goal of rows that do not end was set against.
    """
    import mlx.core as mx
    from mlx_lm.models.cache import make_prompt_cache

    def bare(model, prompts, rows_at):
        cache_ = make_prompt_cache(model)
        last = model(prompts, cache=cache_)[:, -1]
        mx.eval(last)
        held = prompts.shape[0]
        for rows in rows_at:
            if rows != held:  # which rows stay does not matter: nothing is read of them
                chosen = mx.zeros(rows, mx.int32)
                for layer in cache_:
                    layer.keys, layer.values = layer.keys[chosen], layer.values[chosen]
                held = rows
            last = model(mx.zeros((rows, 1), mx.int32), cache=cache_)[:, -1]
            mx.eval(last)
        return np.array(last)

    lengths = shape.lengths()
    prompts = mx.array(np.repeat(shape.prompt_ids()[None], 1 if shape.early else shape.samples, axis=0))
    rows_at = [int((lengths > t).sum()) for t in range(1, lengths.max())]
    names = {"bare": bare, "model": work.model(shape.model), "prompts": prompts, "rows_at": rows_at}

    def right(got):
        size = (rows_at[-1], work.VOCABULARY[shape.model])
        return [proof.equal("bare loop: logits that are not there", float(got.shape != size), 0.0, "one row each")]

    return Side(
        "bare(model, prompts, rows_at)", names, right, "forwards and nothing else, the same token fed each time"
    )


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
    """`generate_grpo` of mlx-lm-lora as `train_grpo` calls it for one prompt a step, its default: row by row."""
    return _elsewhere(
        shape,
        "mlx-lm-lora",
        "generate_grpo over mlx-lm's BatchGenerator, the prompt's cache shared, no log-probs; as train_grpo calls it for "
        "one prompt a step, its default: `batch_size` prompts a step are also the rows that it decodes at a time",
        rows_at_once=1,
    )


def mlx_lm_lora_whole_group(shape):
    """`generate_grpo` of mlx-lm-lora at its best: all rows at a time, which no training run with one prompt a step does."""
    return _elsewhere(
        shape,
        "mlx-lm-lora",
        "generate_grpo over mlx-lm's BatchGenerator, the prompt's cache shared, no log-probs; with batch_size = G, the best "
        "it can do, which its trainer reaches only with as many prompts a step",
        way="whole group",
        rows_at_once=shape.samples,
    )


def mlx_tune(shape):
    """The rollout of mlx-tune's GRPOTrainer, every row with its own limit."""
    return _elsewhere(
        shape,
        "mlx-tune",
        "generate_with_log_probs row by row, the prompt's cache shared; log-probs that are not evaluated; "
        "its sampler has no top-p",
    )


def _elsewhere(shape, peer, note, way="", **more):
    """A peer in a process of its own environment; `way` and `more` are for one that is timed in several ways."""
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
            **more,
        },
        way,
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
