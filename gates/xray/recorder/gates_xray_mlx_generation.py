"""Watch what mlx-lm's generation is asked, prompts, sampler and limits, and the tokens that it draws.

It runs in the interpreter of the script. A failure here never reaches the script.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
import weakref

import mlx.core as mx
import numpy as np

PENALTY = "repetition_penalty"
_samplers = weakref.WeakKeyDictionary()  # what `make_sampler` was asked, by its result
_processors = {}  # a processor and what it was asked, by id
_batches = (
    weakref.WeakKeyDictionary()
)  # prompt and completion so far of each row, by generator and the row's number in it
_watched = set()


def watch_samplers():
    """Wrap `make_sampler` and `make_logits_processors`: their results do not say what they were asked."""
    from mlx_lm import sample_utils

    if "samplers" in _watched:
        return
    _watched.add("samplers")
    make_sampler, make_processors = sample_utils.make_sampler, sample_utils.make_logits_processors

    @functools.wraps(make_sampler)
    def sampler(*args, **kwargs):
        made = make_sampler(*args, **kwargs)
        with contextlib.suppress(Exception):
            _samplers[made] = _settings(**_bound(make_sampler, args, kwargs))
        return made

    @functools.wraps(make_processors)
    def processors(*args, **kwargs):
        made = make_processors(*args, **kwargs)
        with contextlib.suppress(Exception):
            penalty = _bound(make_processors, args, kwargs).get(PENALTY)
            _processors.update({id(each): (each, {PENALTY: penalty}) for each in made})
        return made

    sample_utils.make_sampler, sample_utils.make_logits_processors = sampler, processors


def _settings(temp=0.0, top_p=0.0, min_p=0.0, top_k=0, **_):
    """Return the settings of mlx-lm's sampler in the words of a generation config, as they hold."""
    return {
        "do_sample": temp != 0,
        "temperature": float(temp),
        "top_p": float(top_p) if 0 < top_p < 1 else 1.0,
        "top_k": int(top_k),
        "min_p": float(min_p),
    }


def _recorder():
    """Return the recorder of this process, None before the script has imported an optimizer."""
    return getattr(sys.modules.get("gates_xray_mlx"), "recorder", None)


def watch_generation():
    """Wrap `generate_step`, which `generate` and `stream_generate` call, and `BatchGenerator`."""
    from mlx_lm import generate

    step = generate.generate_step

    @functools.wraps(step)
    def generate_step(prompt, model, *args, **kwargs):
        prompts = []
        with contextlib.suppress(Exception):
            request = {"max_new_tokens": kwargs.get("max_tokens", 256)}
            request.update(_request(kwargs.get("sampler"), kwargs.get("logits_processors")))
            prompts += _recorder().generation([_ids(prompt)], request, kwargs.get("prompt_cache"), model)
        yield from _steps(step(prompt, model, *args, **kwargs), prompts)

    generate.generate_step = generate_step
    batch = getattr(generate, "BatchGenerator", None)
    if batch is not None:
        _watch_batches(batch)


def _watch_batches(batch):
    name = "insert_segments" if hasattr(batch, "insert_segments") else "insert"
    insert = getattr(batch, name)

    @functools.wraps(insert)
    def inserted(self, prompts, *args, **kwargs):
        known = []
        with contextlib.suppress(Exception):
            asked = _bound(insert, (self, prompts, *args), kwargs)
            before = asked.get("all_tokens") or [[] for _ in prompts]
            whole = [[*done, *_flat(prompt)] for done, prompt in zip(before, prompts, strict=True)]
            samplers, limits = asked.get("samplers") or [None], asked.get("max_tokens") or [self.max_tokens]
            request = {"max_new_tokens": max(limits)}
            request.update(_request(samplers[0] or self.sampler, getattr(self, "logits_processors", None)))
            caches = [] if asked.get("all_tokens") else [cache for cache in asked.get("caches") or [] if cache]
            known += _recorder().generation(whole, request, caches[0] if caches else None, self.model)
        numbers = insert(self, prompts, *args, **kwargs)
        with contextlib.suppress(Exception):
            rows = _batches.setdefault(self, {})
            rows.update({number: (prompt, []) for number, prompt in zip(numbers, known, strict=True)})
        return numbers

    setattr(batch, name, inserted)
    for step in ("_next", "next", "next_generated"):
        if hasattr(batch, step):
            setattr(batch, step, _while_generating(getattr(batch, step), _batch_drew))


def _while_generating(method, drew=None):
    """Return a method that notes that it generates; `drew` is told its generator and result, unless another one called it."""

    @functools.wraps(method)
    def watched(*args, **kwargs):
        seeing = _recorder()
        if seeing is None:
            return method(*args, **kwargs)
        seeing.generating += 1
        try:
            result = method(*args, **kwargs)
        finally:
            seeing.generating -= 1
        if drew is not None and not seeing.generating:
            with contextlib.suppress(Exception):
                drew(args[0], result)
        return result

    return watched


def _batch_drew(generator, result):
    """See the tokens of one step of a batch; a row that has ended is written."""
    rows = _batches.get(generator, {})
    for response in _responses(result):
        if response.uid not in rows:
            continue
        prompt, completion = rows[response.uid]
        completion.append(int(response.token))
        if response.finish_reason is not None:
            del rows[response.uid]
            _recorder().recording.sampled(prompt, completion)


def _responses(result):
    """Return what a step says of tokens: it returns a list of it, or what it read of prompts before it."""
    for part in result:
        if isinstance(part, (list, tuple)):
            yield from _responses(part)
        elif hasattr(part, "token"):
            yield part


def _steps(steps, prompts):
    """Yield what a generator yields; the forward passes between are its own."""
    following, completion = _while_generating(lambda: next(steps, None)), []
    try:
        while (item := following()) is not None:
            completion.append(item[0])
            yield item
    finally:  # the script may end it, at a token that ends the row
        with contextlib.suppress(Exception):
            if prompts:
                _recorder().recording.sampled(prompts[0], [int(token) for token in completion])


def _request(sampler, processors):
    """Return what a sampler does, in the words of a generation config."""
    if sampler is None or getattr(sampler, "__name__", "") == "greedy_sampler":
        request = {"do_sample": False, "temperature": 0.0}
    else:
        unknown = {"sampler": getattr(sampler, "__qualname__", type(sampler).__name__)}
        request = dict(_samplers.get(sampler) or unknown)
    for each in processors or []:
        request.update(_processors.get(id(each), (None, {}))[1])
    return request


def _ids(prompt):
    return [int(token) for token in (np.array(prompt).reshape(-1) if isinstance(prompt, mx.array) else prompt)]


def _bound(function, args, kwargs):
    bound = inspect.signature(function).bind(*args, **kwargs)
    bound.apply_defaults()
    return bound.arguments


def _flat(prompt):
    for part in prompt:
        if isinstance(part, (list, tuple)):
            yield from _flat(part)
        else:
            yield int(part)
