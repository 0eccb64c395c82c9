"""The other sides: a bare loop of forwards, mlx-lm's batch_generate, and trainers that run in environments of their own."""

from __future__ import annotations

import atexit
import json
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import numpy as np

from benches.rollout import work
from benches.versus import proof
from benches.versus.model import Side

WORKER = Path(__file__).with_name("mlxrl_worker.py")
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
    """The prefix-cached group rollout of mlxrl, in its own environment; rows end by an end token that is forced."""
    run = _worker(shape)
    note = (
        "in a process of its own; ends are forced in the logits; it starts a group again row by row after an early end"
    )
    return Side("run()", {"run": run}, lambda got: _lengths(shape, "mlxrl", got), note)


def mlx_lm_lora(shape):
    """Say that there is no environment of it yet."""
    raise ImportError(f"no environment of mlx-lm-lora is made by `gates peers sync`; {shape.name} waits for one")


def mlx_tune(shape):
    """Say that there is no environment of it yet."""
    raise ImportError(f"no environment of mlx-tune is made by `gates peers sync`; {shape.name} waits for one")


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


def _worker(shape):
    """A call that lets the peer's process roll out once and returns its lengths."""
    from gates.peers import environments

    environment = environments.environment("mlxrl")
    if not environment.ready:
        raise ImportError("mlxrl has no environment; `gates peers sync mlxrl` makes it")
    process = subprocess.Popen(
        [environment.python, "-I", str(WORKER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    atexit.register(process.kill)

    def ask(message):
        process.stdin.write(json.dumps(message) + "\n")
        process.stdin.flush()
        if not (line := process.stdout.readline()):
            raise RuntimeError(f"the process of mlxrl ended with status {process.wait()}")
        return json.loads(line)

    ask(
        {
            "arguments": work.arguments(shape.model),
            "weights": str(_weights(shape.model)),
            "prompt": shape.prompt_ids().tolist(),
            "lengths": shape.lengths().tolist(),
            "tokens": shape.tokens,
            "temperature": work.TEMPERATURE,
            "top_p": work.TOP_P,
        }
    )
    return lambda: ask("run")
