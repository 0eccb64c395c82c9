"""What transformers' `generate` is asked.

It runs in the interpreter of the script: standard library, NumPy and torch only.
"""

from __future__ import annotations

import contextlib
import functools

import gates_xray_torch

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
            )
        return output

    mixin.generate, mixin._prepare_generation_config = watched, prepared
