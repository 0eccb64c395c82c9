"""Record the updates of an MLX script: which log-probs its gradient is made of.

It runs in the interpreter of the script: standard library, NumPy and mlx only. docs/xray.md says what is measured, has the format, and
tells how MLX is recorded. This module wraps the functions and classes of mlx; what they see is judged in gates_xray_mlx_recorder.
"""

from __future__ import annotations

import functools
import os
import sys

import gates_xray
import mlx.core as mx
from gates_xray_mlx_recorder import Recorder
from mlx import nn, optimizers

recorder = None
_asked = {"compile": True}  # whether the script wants compiled functions
_enable, _disable = mx.enable_compile, mx.disable_compile


def install():
    """Watch this process: calls of modules, differentiated functions, optimizer steps and clipping."""
    global recorder
    if recorder is not None:
        return
    recording = gates_xray.recording()
    recorder = Recorder(recording, _compile_as_asked)
    _watch_compilation()
    for name in ("value_and_grad", "grad", "vjp"):
        setattr(mx, name, _differentiating(getattr(mx, name)))
    _watch_classes(nn.Module, "__call__", _calling)
    _watch_classes(optimizers.Optimizer, "apply_gradients", _applying)
    _watch_classes(optimizers.Optimizer, "update", _updating)
    mx.take_along_axis = _picking(mx.take_along_axis)
    _watch_clipping()
    _watch_distribution()
    facts = {"rank": int(os.environ.get("MLX_RANK", "0")), "world_size": 1}
    recording.event("start", framework=f"mlx {mx.__version__}", python=sys.version.split()[0], **facts)


def _watch_compilation():
    """Switch compilation off until the updates are recorded: a compiled step shows its hooks no numbers."""
    _asked["compile"] = os.environ.get("MLX_DISABLE_COMPILE") is None
    _disable()

    def enable_compile():
        _asked["compile"] = True
        if not recorder.recording.wanted:
            _enable()

    def disable_compile():
        _asked["compile"] = False
        _disable()

    mx.enable_compile, mx.disable_compile = enable_compile, disable_compile


def _compile_as_asked():
    if _asked["compile"]:
        _enable()


def _differentiating(original):
    """Return a transformation of mlx.core whose function is known to be differentiated while it runs."""

    @functools.wraps(original)
    def transformation(function, *args, **kwargs):
        if not callable(function) or recorder.busy or not recorder.recording.wanted:
            return original(function, *args, **kwargs)

        @functools.wraps(function, updated=())
        def traced(*inner, **named):
            recorder.tracing += 1
            try:
                return function(*inner, **named)
            finally:
                recorder.tracing -= 1

        return original(traced, *args, **kwargs)

    return transformation


def _picking(original):
    @functools.wraps(original)
    def take_along_axis(*args, **kwargs):
        if recorder.listening and not recorder.frames and (recorder.calls or recorder.scored):
            logits, indices = args[:2] if len(args) > 1 else (args[0], kwargs["indices"])
            recorder.safely(recorder.picked, logits, indices)
        return original(*args, **kwargs)

    return take_along_axis


def _watch_classes(base, name, wrap):
    """Wrap a method of every class below `base`, those to come included."""

    def watch(kind):
        method = kind.__dict__.get(name)
        if callable(method) and not hasattr(method, "of_gates_xray"):
            wrapped = wrap(method)
            wrapped.of_gates_xray = True
            setattr(kind, name, wrapped)

    def descend(kind):
        inside = kind.__module__.startswith("mlx.nn") and kind not in {
            nn.Embedding,
            nn.QuantizedEmbedding,
            nn.Sequential,
        }
        if not (base is nn.Module and inside):
            watch(kind)
        for child in kind.__subclasses__():
            descend(child)

    descend(base)
    before = base.__dict__.get("__init_subclass__")
    earlier = _watched_bases.get(base)
    _watched_bases[base] = [*(earlier or []), watch]
    if earlier is None:

        def defined(cls, **kwargs):
            if before is not None:
                before.__get__(None, cls)(**kwargs)
            else:
                super(base, cls).__init_subclass__(**kwargs)
            for each in _watched_bases[base]:
                each(cls)

        base.__init_subclass__ = classmethod(defined)


_watched_bases = {}


def _calling(original):
    @functools.wraps(original)
    def called(self, *args, **kwargs):
        if recorder.busy:
            return original(self, *args, **kwargs)
        return recorder.forward(original, self, args, kwargs)

    return called


def _applying(original):
    @functools.wraps(original)
    def apply_gradients(self, gradients, parameters):
        return recorder.step(original, self, gradients, parameters)

    return apply_gradients


def _updating(original):
    @functools.wraps(original)
    def update(self, model, gradients):
        recorder.models.append(model)
        try:
            return original(self, model, gradients)
        finally:
            recorder.models.pop()

    return update


def _watch_clipping():
    original = optimizers.clip_grad_norm

    @functools.wraps(original)
    def clip_grad_norm(grads, max_norm):
        clipped, norm = original(grads, max_norm)
        if recorder.listening:
            recorder.clipped(grads, norm, max_norm)
        return clipped, norm

    optimizers.clip_grad_norm = optimizers.optimizers.clip_grad_norm = clip_grad_norm


def _watch_distribution():
    original = mx.distributed.init

    @functools.wraps(original)
    def init(*args, **kwargs):
        recorder.group = original(*args, **kwargs)
        return recorder.group

    mx.distributed.init = init
