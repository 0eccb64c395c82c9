"""What transformers' `generate` is asked, and the tokens that it draws.

It runs in the interpreter of the script: standard library, NumPy and torch only.
"""

from __future__ import annotations

import contextlib
import functools

import gates_xray_torch
from gates_xray_sampler import whose

REQUEST = (
    "do_sample",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "typical_p",
    "repetition_penalty",
    "max_new_tokens",
    "max_length",
)


def defaults(own, kwargs):
    """Return what neither the script nor the model's folder has set, so that the library's default holds."""
    if kwargs.get("generation_config") is not None:
        return []
    plain = type(own)()
    return [
        name
        for name in REQUEST
        if name not in kwargs and getattr(own, name, None) in {None, getattr(plain, name, None)}
    ]


def generation():
    """Watch transformers' `generate`: what it was asked, as it holds after the model's own defaults."""
    from transformers.generation import utils

    mixin = utils.GenerationMixin
    generate, prepare = mixin.generate, mixin._prepare_generation_config
    asked = []

    @functools.wraps(prepare)
    def prepared(self, *args, **kwargs):
        result = prepare(self, *args, **kwargs)
        asked.append(result[0] if isinstance(result, tuple) else result)
        return result

    @functools.wraps(generate)
    def watched(self, *args, **kwargs):
        recorder = gates_xray_torch.recorder()
        if recorder.busy:
            return generate(self, *args, **kwargs)
        recorder.generating += 1
        asked.clear()
        try:
            output = generate(self, *args, **kwargs)
        finally:
            recorder.generating -= 1
        with contextlib.suppress(Exception):
            ids = kwargs.get("input_ids", kwargs.get("inputs", args[0] if args else None))
            recorder.before_generate(ids, kwargs.get("attention_mask"))
            config = asked[0] if asked else self.generation_config
            request = {name: getattr(config, name, None) for name in REQUEST}
            request["defaults"] = defaults(self.generation_config, kwargs)
            if request.get("do_sample") and request.get("temperature"):
                recorder.temperature = float(request["temperature"])
            sequences = getattr(output, "sequences", output)
            recorder.recording.event(
                "generate",
                prompts=len(ids),
                request=request,
                completions=len(sequences),
                update=recorder.recording.made,
                weights=_weights_of(self, recorder),
            )
            for prompt, completion in _drawn(ids, kwargs.get("attention_mask"), sequences, config):
                recorder.recording.sampled(prompt, completion)
        return output

    mixin.generate, mixin._prepare_generation_config = watched, prepared


def _weights_of(model, recorder):
    """Return whose weights a sampling model has."""
    sampler = dict(model.named_parameters())
    return whose(sampler, recorder.trained, recorder.start, lambda a, b: a.shape == b.shape and bool((a == b).all()))


def _drawn(ids, mask, sequences, config):
    """Yield the attended prompt of each sequence, and its completion up to the first token that ends a row."""
    width, each = ids.shape[1], len(sequences) // len(ids)
    if not bool((sequences[:, :width] == ids.repeat_interleave(each, 0)).all()):  # of an encoder and a decoder
        return
    attended = (ids.new_ones(ids.shape) if mask is None else mask).tolist()
    ends = config.eos_token_id if isinstance(config.eos_token_id, (list, tuple)) else [config.eos_token_id]
    for index, row in enumerate(sequences.tolist()):
        prompt = [token for token, counts in zip(row, attended[index // each], strict=False) if counts]
        last = next((place for place in range(width, len(row)) if row[place] in ends), len(row))
        yield prompt, row[width : last + 1]
