"""What the hooks of gates_xray_mlx see in an MLX script: forward passes, generation, clipping and optimizer steps.

It runs in the interpreter of the script: standard library, NumPy and mlx only. No failure here reaches the script.
"""

from __future__ import annotations

import os
import traceback

import gates_xray
import gates_xray_cannot as cannot
import gates_xray_mlx_calls as passes
import mlx.core as mx
from gates_xray_mlx_columns import TooLargeError
from gates_xray_mlx_update import Update
from gates_xray_sampler import whose
from mlx import nn
from mlx.utils import tree_flatten

MOST_CLIPS = 256  # of an update that are kept
SCORED = 256  # most passes without gradient that are kept
RECENT = 8  # passes to which tokens that are scored afterwards may belong


class Recorder:
    """Sees the script's own passes and steps, and has each update measured.

    Attributes:
        busy: during the recorder's own passes.
        tracing: how many functions that are being differentiated are running.
        generating: how many calls of mlx-lm's generation are running.
        frames: calls of modules with token ids that are running.
        ends: keys of the last tokens of what samplers were given, and of what other passes without gradient were given.
        models: given to Optimizer.update, from the outside in.
        root: the module whose parameters the last update moved.
    """

    def __init__(self, recording, recorded):
        self.recording = recording
        self._recorded = recorded
        self.busy = self.applying = False
        self.tracing = self.generating = self.hashed = 0
        self.frames, self.calls, self.scored, self.models, self.temperatures = [], [], [], [], []
        self.ends = (set(), set())
        self.vocabularies = set()
        self.clip = self.start = self.group = self.root = None
        self.clips = []  # of the norm since the last update: the numbers, the parameters, and the last pass before
        self._given = None  # tokens by row that a new key-value cache has got so far, and the logits after them
        self._growing = None  # the last pass without gradient, to know sampling loops
        self._said = False

    @property
    def listening(self):
        """Whether the script's own passes are to be seen now."""
        return not self.busy and self.recording.wanted

    # ---------------------------------------------------------------------------------------- forward passes

    def forward(self, original, module, args, kwargs):
        """Call a module for the script, and see the pass if it was given token ids."""
        ids = passes.token_ids(args, kwargs) if self.listening else None
        if ids is None:
            return original(module, *args, **kwargs)
        if isinstance(module, (nn.Embedding, nn.QuantizedEmbedding)):
            self._embedded(module)
            return original(module, *args, **kwargs)
        frame = self._opened(module, args, kwargs, ids)
        try:
            output = original(module, *args, **kwargs)
        finally:
            self.frames.remove(frame)
        self.safely(self._ended, frame, output)
        return output

    def _opened(self, module, args, kwargs, ids):
        frame = passes.Frame(module, args, kwargs, ids)
        self.frames.append(frame)
        self.safely(frame.look)
        return frame

    def _embedded(self, module):
        rows = int(module.weight.shape[0])
        self.vocabularies.add(rows)
        for frame in self.frames:
            frame.touched = True
            frame.vocabulary = frame.vocabulary or rows

    def _ended(self, frame, output):
        """See the end of a pass: the outermost that gives logits counts, or the body of a model whose head is called apart."""
        call = self._call(frame, output)
        better = any(not inner.bare for inner in frame.calls)
        calls = frame.calls if call is None or (call.bare and better) else [call]
        if self.frames:
            self.frames[-1].calls += calls
            self.frames[-1].inner += [frame.module, *frame.inner]
            return
        for call in calls:
            self._keep(call, passes.logits_of(output))

    def _call(self, frame, output):
        logits = passes.logits_of(output)
        if logits is None or 0 in logits.shape:
            return None
        ids = passes.readable(frame.ids)
        if ids is None:
            self._unreadable(frame.module)
            return None
        width = logits.shape[-1]
        known = width == frame.vocabulary if frame.touched else width in self.vocabularies or width > ids.max()
        if not known and (not frame.touched or logits.shape[:-1] != frame.ids.shape):
            return None
        call = passes.Call(frame, ids, bool(self.tracing))
        call.bare = not known
        if not frame.touched:
            call.seen = passes.readable(logits.reshape(-1, *logits.shape[-2:])[:, : passes.COMPARED])
            return None if call.seen is None else call
        return call

    def _keep(self, call, logits):
        """Keep a pass: with gradient for the next update, without as a scorer, unless it belongs to a loop that samples."""
        if call.traced:
            self.calls.append(call)
            if sum(len(call.ids) for call in self.calls) > gates_xray.MOST_ROWS:
                del self.calls[0]
            return
        self.hashed += call.ids.size
        if self.generating or self.hashed > gates_xray.MOST_HASHED:
            return
        if call.cached is not None:
            self._sampling(call, logits)
            return
        self._note_ends(call.attended_rows())
        if call.follows(self._growing):
            call.loop = True
            if not self._growing.scored:
                self.scored = [entry for entry in self.scored if entry[0] is not self._growing]
        if call.ids.shape[1] > 1:
            self.scored.append((call, self.recording.made))
            del self.scored[:-SCORED]
        self._growing = call

    def _sampling(self, call, logits):
        """Follow a new key-value cache up to the first sampled token: a prompt ends where its logits were needed.

        The tokens of this pass have been read, so the logits before them have been computed if the tokens came from these.
        """
        rows = call.attended_rows()
        if self._given is not None:
            before, waiting = self._given
            if not passes.waits(waiting):
                self._note_ends(before)
            elif call.cached and len(before) == len(rows):
                self._given = ([[*start, *more] for start, more in zip(before, rows, strict=True)], logits)
                return
        self._given = None if call.cached else (rows, logits)

    def _note_ends(self, rows):
        self.ends[1].update(gates_xray.keys(row, [1] * len(row))[-1] for row in rows if row)

    def picked(self, values, indices):
        """See which tokens the script scores, or whose scores it gathers: the last of a row is often no input of the model."""
        if values.ndim == 2 and mx.issubdtype(values.dtype, mx.integer):
            scored, whole = values, True
        else:
            scored = indices[..., None] if values.ndim == indices.ndim + 1 else indices
            whole = values.ndim == 2
            if values.shape[-1] not in self.vocabularies or scored.shape != (*values.shape[:-1], 1):
                return
        recent = [*self.calls[-RECENT:], *(call for call, _ in self.scored[-RECENT:])]
        recent = [call for call in recent if call.tokens is call.ids]
        recent = [c for c in recent if scored.size == c.ids.size or (not whole and scored.shape[0] == len(c.ids))]
        numbers = passes.readable(scored) if recent else None
        for call in reversed(recent) if numbers is not None else ():
            if call.targets(numbers.reshape(len(call.ids), -1)):
                return

    def _unreadable(self, module):
        if not self._said:
            self._said = True
            self.recording.event(
                "cannot",
                reason=f"{type(module).__name__} was called inside a compiled, checkpointed or batched function, where "
                "token ids have no numbers: record a run without it",
            )

    # -------------------------------------------------------------------------------------------- generation

    def generation(self, prompts, request, cache=None, model=None):
        """See what a sampler was asked for: prompts, which go on from a key-value cache if there is one, and settings.

        Returns the whole prompts; none where it is not known what the cache holds.
        """
        if not self.listening:
            return []
        whole = prompts
        held = passes.held_by(cache) if cache is not None else 0
        if held:
            before = [row for row in (self._given[0] if self._given else ()) if len(row) == held]
            whole = [[*before[0], *prompt] for prompt in prompts] if len(before) == 1 else []
        self.ends[0].update(gates_xray.keys(prompt, [1] * len(prompt))[-1] for prompt in whole if prompt)
        if request.get("do_sample") and request.get("temperature") not in self.temperatures:
            self.temperatures.append(request["temperature"])
        weights = None if model is None or self.root is None else self._weights_of(model)
        count = len(prompts)
        self.recording.event(
            "generate", prompts=count, request=request, completions=count, update=self.recording.made, weights=weights
        )
        return whole

    def _weights_of(self, model):
        """Return whose weights a sampling model has."""
        sampler, trained = (dict(tree_flatten(each.parameters())) for each in (model, self.root))
        return whose(sampler, trained, self.start, lambda a, b: a.shape == b.shape and bool(mx.array_equal(a, b)))

    # -------------------------------------------------------------------------------------------- the updates

    def clipped(self, gradients, norm, limit):
        """See a call that clips the norm of gradients."""
        self.clip = (norm, limit)
        self.clips.append((self.clip, {name for name, _ in tree_flatten(gradients)}, self.calls[-1:]))
        del self.clips[:-MOST_CLIPS]

    def step(self, original, optimizer, gradients, parameters):
        """Make an optimizer's step for the script, and record the update."""
        if self.applying or self.busy:
            return original(optimizer, gradients, parameters)
        self.applying = True
        try:
            update = self._before(optimizer, gradients, parameters) if self.recording.wanted else None
            result = original(optimizer, gradients, parameters)
        finally:
            self.applying = False
        self.recording.made += 1
        if update is not None:
            self._after(update, result)
        return result

    def _before(self, optimizer, gradients, parameters):
        """Return the update that an optimizer is about to make, measured, None where it cannot be recorded."""
        self.recording.trains()
        self.busy = True
        try:
            self.root = self._root(gradients, parameters)
            update = Update(self, optimizer, self.root, gradients)
            if update.calls:
                update.measure()
                return update
            self.recording.event(
                "cannot",
                reason=f"an update of {type(optimizer).__name__} came without a forward pass that gave logits for token ids "
                "with gradient",
            )
        except TooLargeError as large:
            self.recording.event("too large", **large.facts)
            gates_xray.say(str(large))
            self.recording.recorded = self.recording.options.updates
            self._recorded()
        except Exception as error:  # the script goes on, whatever happens here
            self.failed(error)
        finally:
            self.busy = False
        self.calls, self.clip, self.clips = [], None, []
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
        raise ValueError("no model is known whose parameters the optimizer moves")

    def _after(self, update, result):
        self.busy = True
        try:
            update.write(result)
        except Exception as error:  # the script goes on, whatever happens here
            self.failed(error)
        finally:
            self.busy = False
        self.calls, self.clip, self.clips, self.hashed = [], None, [], 0
        if self.recording.wanted:
            return
        self._recorded()
        if self.recording.options.stop:
            gates_xray.say("the updates are recorded; the script is stopped")
            raise SystemExit(0)

    # ------------------------------------------------------------------------------------------------ failures

    def safely(self, function, *args):
        """Call a function of the recorder; its failure is said and does not reach the script."""
        try:
            function(*args)
        except Exception as error:  # the script goes on, whatever happens here
            self.failed(error)

    def failed(self, error):
        """Say why an update could not be recorded."""
        self.recording.cannot(cannot.sentence(error))
        if os.environ.get("GATES_XRAY_DEBUG"):
            traceback.print_exception(error)
