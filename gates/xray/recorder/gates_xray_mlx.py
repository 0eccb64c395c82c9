"""Record the updates of an MLX script: which log-probs its gradient is made of.

It runs in the interpreter of the script: standard library, NumPy and mlx only. docs/xray.md says what is measured, has the format, and
tells how MLX is recorded. This module holds what the hooks see; gates_xray_mlx_calls repeats forward passes, gates_xray_mlx_update
measures an update.
"""

from __future__ import annotations

import functools
import os
import sys
import traceback

import gates_xray
import gates_xray_mlx_calls as passes
import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optimizers
from gates_xray_mlx_update import TooLarge, Update
from mlx.utils import tree_flatten

SCORED = 256  # most passes without gradient that are kept


class Recorder:
    """Sees forward passes, generation, clipping and optimizer steps of one process."""

    def __init__(self, recording):
        self.recording = recording
        self.busy = False  # its own passes
        self.applying = False  # inside an optimizer's step
        self.tracing = 0  # inside a function that is being differentiated
        self.generating = 0
        self.frames = []
        self.calls = []
        self.scored = []  # [pass without gradient, updates made before]
        self.hashed = 0
        self.ends = set()  # of what samplers were given
        self.weak_ends = set()  # of what passes without gradient were given
        self.growing = None  # tokens of the last pass without gradient, to know sampling loops
        self.models = []  # given to Optimizer.update, from the outside in
        self.temperatures = []
        self.clip = None
        self.start = None
        self.group = None
        self.vocabularies = set()

    @property
    def listening(self):
        """Whether the script's own passes are to be seen now."""
        return not self.busy and self.recording.wanted

    # ------------------------------------------------------------------------------------------ what hooks see

    def forward(self, original, module, args, kwargs):
        """Call a module for the script, and see the pass if it was given token ids."""
        ids = passes.token_ids(args, kwargs) if self.listening else None
        if ids is None:
            return original(module, *args, **kwargs)
        if isinstance(module, (nn.Embedding, nn.QuantizedEmbedding)):
            self._embedded(module)
            return original(module, *args, **kwargs)
        frame = passes.Frame(module, args, kwargs, ids)
        self.frames.append(frame)
        try:
            output = original(module, *args, **kwargs)
        finally:
            self.frames.pop()
        try:
            self._ended(frame, output)
        except Exception as error:  # the script goes on, whatever happens here
            self.failed(error)
        return output

    def _embedded(self, module):
        rows = int(module.weight.shape[0])
        self.vocabularies.add(rows)
        for frame in self.frames:
            frame.touched = True
            frame.vocabulary = frame.vocabulary or rows

    def _ended(self, frame, output):
        """See the end of a pass: the outermost that gives logits counts, or the body of a model whose head is called apart."""
        call = self._call(frame, output)
        calls = frame.calls if call is None else [call]
        if call is not None and call.bare and any(not inner.bare for inner in frame.calls):
            calls = frame.calls
        if self.frames:
            self.frames[-1].calls += calls
            self.frames[-1].inner += [frame.module, *frame.inner]
            return
        for call in calls:
            self._keep(call)

    def _call(self, frame, output):
        logits = passes.logits_of(output)
        if logits is None or 0 in logits.shape:
            return None
        ids = passes.readable(frame.ids)
        if ids is None:
            self.unreadable(frame.module)
            return None
        width = logits.shape[-1]
        known = width == frame.vocabulary if frame.touched else width in self.vocabularies or width > ids.max()
        if not known and (not frame.touched or logits.shape[:-1] != frame.ids.shape):
            return None
        call = passes.Call(frame, ids, bool(self.tracing))
        call.bare = not known
        if not frame.touched:
            seen = passes.readable(logits.reshape(-1, *logits.shape[-2:])[:, : passes.COMPARED])
            if seen is None:
                return None
            call.seen = seen
        return call

    def _keep(self, call):
        if call.traced:
            self.calls.append(call)
            if sum(len(call.ids) for call in self.calls) > gates_xray.MOST_ROWS:
                del self.calls[0]
            return
        if self.generating:
            return
        self.hashed += call.ids.size
        if self.hashed > gates_xray.MOST_HASHED:
            return
        if call.cached is not None:
            if call.cached == 0:
                self._note_ends(call)
            return
        self._note_ends(call)
        grew = self.growing is not None and call.ids.shape[0] == self.growing.ids.shape[0]
        if grew and call.ids.shape[1] == self.growing.ids.shape[1] + 1 and (call.ids[:, :-1] == self.growing.ids).all():
            self.scored = [entry for entry in self.scored if entry[0] is not self.growing]  # a loop that samples
        elif call.ids.shape[1] > 1:
            self.scored.append([call, self.recording.made])
            del self.scored[:-SCORED]
        self.growing = call

    def _note_ends(self, call):
        for row in range(len(call.ids)):
            attended = call.attended[row]
            counted = [k for k, counts in enumerate(attended) if counts]
            if counted:
                kept = call.ids[row, counted].tolist()
                self.weak_ends.add(gates_xray.keys(kept, [1] * len(kept))[-1])

    def picked(self, logits, indices):
        """See which tokens the script scores: the last of a row is often no input of the model."""
        if logits.ndim == indices.ndim + 1:
            indices = indices[..., None]
        if logits.shape[-1] not in self.vocabularies or logits.ndim not in {2, 3} or indices.shape != (*logits.shape[:-1], 1):
            return
        recent = [*self.calls[-8:], *(entry[0] for entry in self.scored[-8:])]
        recent = [call for call in recent if call.tokens is call.ids]
        rows = {len(call.ids) for call in recent}
        if not recent or not (logits.ndim == 2 or logits.shape[0] in rows):
            return
        scored = passes.readable(indices)
        for call in reversed(recent) if scored is not None else ():
            whole = logits.ndim == 3 or scored.size == call.ids.size
            if whole and scored.size % len(call.ids) == 0 and call.targets(scored.reshape(len(call.ids), -1)):
                return

    def unreadable(self, module):
        """Say once that token ids could not be read."""
        if not getattr(self, "_said", False):
            self._said = True
            self.recording.event(
                "cannot",
                reason=f"{type(module).__name__} was called inside a compiled, checkpointed or batched function, where token ids have no "
                "numbers: record a run without it",
            )

    def generation(self, prompts, request):
        """See what a sampler was asked for."""
        if not self.listening:
            return
        for prompt in prompts:
            if len(prompt):
                self.ends.add(gates_xray.keys(prompt, [1] * len(prompt))[-1])
        if request.get("do_sample") and request.get("temperature") not in self.temperatures:
            self.temperatures.append(request["temperature"])
        self.recording.event("generate", prompts=len(prompts), request=request, completions=len(prompts), update=self.recording.made)

    # -------------------------------------------------------------------------------------------- the updates

    def step(self, original, optimizer, gradients, parameters):
        """Make an optimizer's step for the script, and record the update."""
        if self.applying or self.busy:
            return original(optimizer, gradients, parameters)
        update, self.applying = None, True
        try:
            if self.recording.wanted:
                update = self._before(optimizer, gradients, parameters)
            result = original(optimizer, gradients, parameters)
        finally:
            self.applying = False
        self.recording.made += 1
        if update is not None:
            self._after(update, result)
        return result

    def _before(self, optimizer, gradients, parameters):
        self.busy = True
        try:
            self.recording.trains()
            root = self._root(gradients, parameters)
            update = Update(self, optimizer, root, gradients)
            if update.calls:
                update.measure()
                return update
            self.recording.event(
                "cannot",
                reason=f"an update of {type(optimizer).__name__} came without a forward pass that gave logits for token ids with gradient",
            )
        except TooLarge as large:
            self.recording.event("too large", **large.facts)
            gates_xray.say(str(large))
            self.recording.recorded = self.recording.options.updates
        except Exception as error:  # the script goes on, whatever happens here
            self.failed(error)
        finally:
            self.busy = False
            self._compile_again()
        return None

    def _root(self, gradients, parameters):
        """Return the module whose parameters the optimizer moves."""
        if isinstance(parameters, nn.Module):
            return parameters
        if self.models:
            return self.models[-1]
        names = set(dict(tree_flatten(gradients)))
        for call in reversed(self.calls):
            if names <= set(dict(tree_flatten(call.module.parameters()))):
                return call.module
        if self.calls:
            return self.calls[-1].module
        raise ValueError("no model is known whose parameters the optimizer moves")

    def _after(self, update, result):
        self.busy = True
        try:
            update.write(result)
        except Exception as error:  # the script goes on, whatever happens here
            self.failed(error)
        finally:
            self.busy = False
        self.calls, self.clip, self.hashed = [], None, 0
        self._compile_again()
        if self.recording.options.stop and not self.recording.wanted:
            gates_xray.say("the updates are recorded; the script is stopped")
            raise SystemExit(0)

    def _compile_again(self):
        if not self.recording.wanted:
            _compile_as_asked()

    def failed(self, error):
        """Say why an update could not be recorded."""
        where = traceback.extract_tb(error.__traceback__)[-1]
        self.recording.cannot(
            f"an update could not be recorded: {type(error).__name__}: {str(error)[:300]} ({os.path.basename(where.filename)}:{where.lineno})"
        )
        if os.environ.get("GATES_XRAY_DEBUG"):
            traceback.print_exception(error)


# ------------------------------------------------------------------------------------------------- the hooks

recorder = None
_asked = {"compile": True}  # whether the script wants compiled functions
_enable, _disable = mx.enable_compile, mx.disable_compile


def install():
    """Watch this process: calls of modules, differentiated functions, optimizer steps and clipping."""
    global recorder
    if recorder is not None:
        return
    recording = gates_xray.recording()
    recorder = Recorder(recording)
    _watch_compilation()
    for name in ("value_and_grad", "grad", "vjp"):
        setattr(mx, name, _differentiating(getattr(mx, name)))
    _watch_classes(nn.Module, "__call__", _calling)
    _watch_classes(optimizers.Optimizer, "apply_gradients", _applying)
    _watch_classes(optimizers.Optimizer, "update", _updating)
    mx.take_along_axis = _picking(mx.take_along_axis)
    _watch_clipping()
    _watch_distribution()
    facts = {"rank": int(os.environ.get("MLX_RANK", "0")), "world_size": None}
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
            try:
                recorder.picked(*(args if len(args) > 1 else (args[0], kwargs["indices"]))[:2])
            except Exception as error:  # the script goes on, whatever happens here
                recorder.failed(error)
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
        inside = kind.__module__.startswith("mlx.nn") and kind not in {nn.Embedding, nn.QuantizedEmbedding, nn.Sequential}
        if not (base is nn.Module and inside):
            watch(kind)
        for child in kind.__subclasses__():
            descend(child)

    descend(base)
    before = base.__dict__.get("__init_subclass__")
    earlier = _watched_bases.get(base)
    _watched_bases[base] = [*(earlier or []), watch]
    if earlier is None:

        def __init_subclass__(cls, **kwargs):
            if before is not None:
                before.__get__(None, cls)(**kwargs)
            else:
                super(base, cls).__init_subclass__(**kwargs)
            for each in _watched_bases[base]:
                each(cls)

        base.__init_subclass__ = classmethod(__init_subclass__)


_watched_bases = {}


def _calling(original):
    @functools.wraps(original)
    def __call__(self, *args, **kwargs):
        if recorder.busy:
            return original(self, *args, **kwargs)
        return recorder.forward(original, self, args, kwargs)

    return __call__


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
            recorder.clip = (norm, max_norm)
        return clipped, norm

    optimizers.clip_grad_norm = optimizers.optimizers.clip_grad_norm = clip_grad_norm


def _watch_distribution():
    original = mx.distributed.init

    @functools.wraps(original)
    def init(*args, **kwargs):
        recorder.group = original(*args, **kwargs)
        return recorder.group

    mx.distributed.init = init
