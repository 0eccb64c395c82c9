"""Forward passes of an MLX script as its recorder sees them: tokens, what was attended, and how to repeat a pass.

It runs in the interpreter of the script: standard library, NumPy and mlx only. MLX has no hooks on modules, so the calls of the classes
are wrapped (gates_xray_mlx).
"""

from __future__ import annotations

import contextlib
import io

import gates_xray
import mlx.core as mx
import numpy as np
from mlx import nn

NAMES = ("inputs", "input_ids", "ids", "tokens", "input_tokens", "x")  # of token ids that are given by name
COMPARED = 8  # positions of each row at which a pass without embedding is compared with its repetition
CLOSE = 1e-3  # of the largest logit, for that comparison: float32 and half precision lie below, other tokens far above


class Frame:
    """A call of a module with token ids that is running.

    Attributes:
        touched: whether an embedding has been called in it; a head that is called alone through its model has none.
        calls: the passes that were seen inside and count unless this one does.
        inner: the modules that were called with token ids inside.
    """

    def __init__(self, module, args, kwargs, ids):
        self.module = module
        self.args = args
        self.kwargs = kwargs
        self.ids = ids
        self.touched = False
        self.vocabulary = None
        self.calls = []
        self.inner = []
        self.offset = None
        self.padding = None

    def look(self):
        """Read what a key-value cache holds before the call."""
        with contextlib.suppress(RuntimeError, ValueError):  # no numbers inside a compiled or batched function
            self.offset = _offset(self.args, self.kwargs)
            self.padding = _left_padding(self)


class Call:
    """A forward pass that gave logits: its module, what it was given, and the tokens.

    Attributes:
        module: the outermost module that took the token ids and gave logits.
        ids: (B, T), what the module was given.
        tokens: the same, with the token that follows each row where the script scored it.
        limits: for each row the last position whose token follows the tokens before it in `ids`.
        attended: as `tokens`, 0 where a mask says so, and in the run of equal tokens at a row's end.
        masked: whether `attended` comes from a mask; else the model attends to all tokens before each.
        bare: whether the module gave hidden states; then a module that holds it gives the logits.
        cached: None without a key-value cache, else the tokens that it held before.
        seen: logits at the first positions, for a pass that touched no embedding.
        loop: whether it has one token more than the pass before, as in a loop that samples.
        scored: whether the script took the log-probs of these tokens.
    """

    def __init__(self, frame, readable, traced):
        self.module = frame.module
        self.traced = traced
        self.bare = False
        self.seen = None
        self.loop = self.scored = False
        self.cached = frame.offset
        self.flat = readable.ndim == 1
        self.ids = readable.reshape(-1, readable.shape[-1])
        given = [_without_cache(value, name=None) for value in frame.args]
        named = {name: _without_cache(value, name) for name, value in frame.kwargs.items()}
        self._ids_at = next((k for k, value in enumerate(given) if value is frame.ids), None)
        self._ids_name = next((name for name, value in named.items() if value is frame.ids), None)
        self.args, self.kwargs = given, named
        mask = self._mask()
        self.masked = mask is not None
        self.tokens = self.ids
        self.limits = [self.ids.shape[1]] * len(self.ids)
        self.attended = mask if self.masked else _before_padding(self.ids)
        front = frame.padding
        if front is not None and front.shape == (len(self.ids),):
            self.attended = (np.arange(self.ids.shape[1])[None, :] >= front[:, None]).astype(np.int64)
        self.state = State([frame.module, *frame.inner], arrays=not traced)
        self.parts = {id(part) for part in frame.module.modules()} | {
            id(part) for inner in frame.inner for part in inner.modules()
        }
        self.dropout = max(
            (1.0 - getattr(p, "_p_1", 1.0) for p in _modules([frame.module, *frame.inner]) if _drops(p)), default=0.0
        )
        self.off = _scaled_to_nothing(frame)

    def targets(self, scored):
        """See tokens (B, W) that the script scores with the last logits; return whether they are the tokens of this pass.

        The last may be the token that follows each row: many scripts give the model all tokens but the last. A shorter row
        then has padding where its last token was.
        """
        width = scored.shape[1]
        if width > self.ids.shape[1]:
            return False
        if (scored == self.ids[:, -width:]).all():
            fresh, self.scored = not self.scored, True
            return fresh
        shift = self.ids.shape[1] - width + 1  # position of the first scored token
        differs = scored[:, :-1] != self.ids[:, shift:]
        if (differs & (self.attended[:, shift:] > 0)).any():
            return False
        self.scored = True
        self.tokens = np.concatenate([self.ids, np.maximum(scored[:, -1:], 0)], axis=1)
        self.attended = np.concatenate([self.attended, self.attended[:, -1:] * (scored[:, -1:] >= 0)], axis=1)
        for line in np.flatnonzero(differs.any(-1)):
            first = shift + int(differs[line].argmax())
            if self.attended[line, first - 1] and scored[line, first - shift] >= 0:
                self.tokens[line, first] = scored[line, first - shift]
                self.attended[line, first] = 1
                self.limits[line] = first
        if not self.masked:
            self.attended = _before_padding(self.tokens)
        return True

    def attended_rows(self):
        """Return the attended tokens of each row that the module was given."""
        width = self.ids.shape[1]
        return [ids[counts[:width] > 0].tolist() for ids, counts in zip(self.ids, self.attended, strict=True)]

    def follows(self, call):
        """Return whether this pass has one token more in each row than another, as in a loop that samples."""
        if call is None or (len(call.ids), call.ids.shape[1] + 1) != self.ids.shape:
            return False
        return bool((self.ids[:, :-1] == call.ids).all())

    def climb(self, root):
        """Give the logits by the smallest module of a model that holds this one; return whether there is any."""
        holders = [part for part in root.modules() if part is not self.module and self._inside(part)]
        if not holders:
            return False
        self.module = min(holders, key=lambda part: len(part.modules()))
        self.parts |= {id(part) for part in self.module.modules()}
        return True

    def _inside(self, holder):
        return any(part is self.module for part in holder.modules())

    def _mask(self):
        """Return the mask (B, T) of whole numbers that the pass was given, None where there is none."""
        for value in (*self.args, *self.kwargs.values()):
            if (
                isinstance(value, mx.array)
                and value.shape == self.ids.shape
                and value.dtype in {mx.bool_, mx.int32, mx.int64, mx.float32, mx.uint8}
            ):
                if value is (self.args[self._ids_at] if self._ids_at is not None else self.kwargs.get(self._ids_name)):
                    continue
                read = np.array(value)
                if np.isin(read, (0, 1)).all():
                    return read.astype(np.int64)
        return None

    @property
    def plain(self):
        """Whether a row depends on its tokens only, so that the end of a row may be cut off."""
        rest = [value for k, value in enumerate(self.args) if k != self._ids_at]
        rest += [value for name, value in self.kwargs.items() if name != self._ids_name]
        return not self.masked and not any(isinstance(value, mx.array) for value in rest)

    def logits(self, row=None, length=None):
        """Repeat the pass, for one row by itself if it is named: logits (B, T, V)."""
        rows = len(self.ids)
        ids = mx.array(self.ids if row is None else self.ids[row : row + 1])
        if length is not None:
            ids = ids[:, :length]

        def cut(value):
            sliced = row is not None and isinstance(value, mx.array) and value.ndim > 0 and value.shape[0] == rows
            return value[row : row + 1] if sliced else value

        given = [ids[0] if self.flat else ids if k == self._ids_at else cut(value) for k, value in enumerate(self.args)]
        named = {
            name: (ids[0] if self.flat else ids) if name == self._ids_name else cut(value)
            for name, value in self.kwargs.items()
        }
        if self.bare:
            given, named = [ids[0] if self.flat else ids], {}
        result = logits_of(self.module(*given, **named))
        if result is None:
            raise ValueError(f"{type(self.module).__name__} gave no logits for its tokens alone")
        return result[None] if result.ndim == 2 else result

    def repeats(self):
        """Return whether the repeated pass gives the logits that the script saw."""
        if self.seen is None:
            return True
        again = np.array(self.logits()[:, : self.seen.shape[1]].astype(mx.float32))
        same_shape = again.shape == self.seen.shape
        return same_shape and float(np.abs(again - self.seen).max()) <= CLOSE * max(
            float(np.abs(self.seen).max()), 1e-30
        )

    def keys(self, row):
        """Return the keys of a row's tokens; without a mask the model attends to padding too."""
        ids = self.tokens[row].tolist()
        return gates_xray.keys(ids, self.attended[row].tolist() if self.masked else [1] * len(ids))


class State:
    """The modules of a model as they were at a call: parts, settings and, outside of a differentiated function, arrays."""

    def __init__(self, roots, arrays):
        kinds = (nn.Module, list, tuple, dict, mx.array) if arrays else (nn.Module, list, tuple, dict)
        self._kept = [
            (
                part,
                {name: _shallow(value) for name, value in part.items() if isinstance(value, kinds)},
                dict(vars(part)),
            )
            for part in _modules(roots)
        ]

    @contextlib.contextmanager
    def restored(self):
        """Give the modules inside the block what they had."""
        now = [(part, dict(part), dict(vars(part))) for part, _, _ in self._kept]
        try:
            for part, items, settings in self._kept:
                dict.update(part, items)
                vars(part).update(settings)
            yield
        finally:
            for part, items, settings in now:
                dict.clear(part)
                dict.update(part, items)
                vars(part).clear()
                vars(part).update(settings)


@contextlib.contextmanager
def quiet(calls):
    """Let the modules compute without dropout or a change of random numbers, and give back what they had."""
    dropouts = [part for part in _modules([call.module for call in calls]) if _drops(part)]
    key = np.array(mx.random.state[0])
    try:
        for part in dropouts:
            part.eval()
        yield
    finally:
        for part in dropouts:
            part.train()
        if (np.array(mx.random.state[0]) != key).any():
            mx.random.seed(int(key[0]) << 32 | int(key[1]))  # a seed is the two halves of the key


def token_ids(args, kwargs):
    """Return the token ids that a module was given, None if it was given none: whole numbers, (B, T) or (T,)."""
    value = args[0] if args else next((kwargs[name] for name in NAMES if name in kwargs), None)
    whole = isinstance(value, mx.array) and value.ndim in {1, 2} and mx.issubdtype(value.dtype, mx.integer)
    return value if whole else None


def logits_of(output):
    """Return the first array of a result that may be logits: floating and of two or three dimensions."""
    values = output if isinstance(output, (tuple, list)) else [output]
    if isinstance(output, dict):
        values = [output.get("logits")]
    elif not isinstance(output, (mx.array, tuple, list)):
        values = [getattr(output, "logits", None)]
    for value in values:
        if isinstance(value, mx.array) and value.ndim in {2, 3} and mx.issubdtype(value.dtype, mx.floating):
            return value
    return None


def readable(array):
    """Return an array's numbers, None inside a compiled or batched function, where it has none."""
    try:
        return np.array(array.astype(mx.float32) if mx.issubdtype(array.dtype, mx.floating) else array)
    except (RuntimeError, ValueError):
        return None


def waits(array):
    """Return whether an array has not been computed yet."""
    text = io.StringIO()
    mx.export_to_dot(text, array)
    return "rectangle" in text.getvalue()  # an operation


def _modules(roots):
    return list({id(part): part for root in roots for part in root.modules()}.values())


def _drops(part):
    return isinstance(part, nn.Dropout) and part.training and getattr(part, "_p_1", 1.0) < 1.0


def _shallow(value):
    return list(value) if isinstance(value, list) else value


def _is_cache(value):
    return isinstance(value, (list, tuple)) and any(
        hasattr(item, "update_and_fetch") or hasattr(item, "make_mask") for item in value
    )


def _without_cache(value, name):
    return None if _is_cache(value) or (name is not None and "cache" in name) else value


def _caches(args, kwargs):
    for value in (*args, *kwargs.values()):
        if _is_cache(value):
            return [item for item in value if item is not None]
    return None


def _offset(args, kwargs):
    """Return how many tokens a key-value cache holds, None without one."""
    caches = _caches(args, kwargs)
    if caches is None:
        return 1 if any("cache" in name and value is not None for name, value in kwargs.items()) else None
    return held_by(caches)


def held_by(caches):
    """Return how many tokens the caches of the layers hold."""
    held = [getattr(cache, "offset", None) for cache in caches]
    return max((int(np.array(value).max()) for value in held if value is not None), default=0)


def _left_padding(frame):
    """Return the padding in front of each row that a batch's cache was told, None without it."""
    for cache in _caches(frame.args, frame.kwargs) or []:
        padding = getattr(cache, "left_padding", None)
        if padding is not None:
            return np.array(padding).reshape(-1)
    return None


def _before_padding(ids):
    """Return 1 for each token, 0 in the run of equal tokens at a row's end where it looks like padding.

    The token of the longest runs pads; where a tokenizer has been seen, only its own special tokens and 0 can.
    """
    attended = np.ones(ids.shape, np.int64)
    runs = [int((row[::-1] == row[-1]).argmin()) or len(row) for row in ids] if ids.shape[1] else []
    special = gates_xray.special_tokens()
    usual = {0, special["pad"], *special["eos"]} if special["eos"] else None
    lengths = {}
    for row, run in zip(ids, runs, strict=True):
        if run > 1 and (usual is None or int(row[-1]) in usual):
            lengths[int(row[-1])] = lengths.get(int(row[-1]), 0) + run
    if lengths:
        pad = max(lengths, key=lengths.get)
        for line, (row, run) in enumerate(zip(ids, runs, strict=True)):
            if row[-1] == pad:
                attended[line, len(row) - run :] = 0
    return attended


def _scaled_to_nothing(frame):
    """Return whether all adapters have the scale 0."""
    scales = [
        vars(part).get("scale", part.get("scale"))
        for part in _modules([frame.module, *frame.inner])
        if "lora_a" in part
    ]
    return bool(scales) and all(isinstance(scale, (int, float)) and scale == 0 for scale in scales)
