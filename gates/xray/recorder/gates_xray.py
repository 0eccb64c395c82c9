"""What the recorders of `gates xray` share: options, files, keys of tokens, and least squares on sketches.

It runs in the interpreter of the script that is recorded: standard library and NumPy only. docs/xray.md has the format.

A script may say what no recorder sees, and still run without Gates:

    try:
        from gates_xray import gates_note
    except ImportError:
        def gates_note(**facts): pass

    gates_note(rewards=rewards, groups=prompt_of_each_row)
"""

from __future__ import annotations

import atexit
import builtins
import functools
import hashlib
import json
import math
import os
import struct
import sys
import tempfile
import time
import weakref
from pathlib import Path

FORMAT = 1
EXPLAINED = 1e-5  # share of a gradient in float32 that is left when its columns explain it: a probe left 2e-7 to 9e-7
NOISES = 10.0  # and that many times what one backward pass in the script's dtype adds
MUCH = (
    0.1  # share that is left, above which scores of other positions are tried; a bonus or a router's loss leaves less
)
BETTER = 0.1  # of the share before: columns that leave less are taken though they leave some
BINS_PER_COLUMN = 4  # a probe lost less than 4e-7 of the coefficients at 4
LEAST_BINS = 256
MOST_HASHED = 1_000_000  # tokens of passes without gradient whose keys are made, so that sampling loops stay fast
SAMPLE = 16_384  # single weights whose update is kept
MOST_ROWS = 4_096  # rows of an update
MOST_SAMPLED = 200_000  # tokens of sampled rows that are kept, 1 MB


class Options:
    """What `gates xray` was asked, from the environment variable GATES_XRAY.

    Attributes:
        folder: where processes write.
        updates: how many updates are recorded.
        columns: the most columns of an update.
        seconds: the most seconds that an update's columns may be expected to take.
        parameters: patterns of the names of parameters to which the fit is restricted; empty: all.
        stop: end the script after the last recorded update.
    """

    def __init__(self, text):
        asked = json.loads(text)
        self.folder = asked["folder"]
        self.updates = int(asked.get("updates", 2))
        self.columns = int(asked.get("columns", 4000))
        self.seconds = float(asked.get("seconds", 300.0))
        self.parameters = list(asked.get("parameters", []))
        self.stop = bool(asked.get("stop", False))


class Recording:
    """The folder of this process; made when there is something to write."""

    def __init__(self, options):
        self.options = options
        self.recorded = 0  # updates that were written
        self.made = 0  # updates that the script made
        self._folder = None
        self._waiting = []  # events before the first update, when it is not known yet whether this process trains
        self._pid = os.getpid()
        self._noted = 0
        self._sampled = 0

    @property
    def wanted(self):
        """Whether further updates are to be recorded."""
        return self.recorded < self.options.updates and os.getpid() == self._pid

    def event(self, name, **facts):
        """Write an event, or keep it until this process is known to train."""
        if os.getpid() != self._pid:  # a fork, such as a worker of a data loader
            return
        line = json.dumps(_plain({"event": name, **facts}))
        if self._folder is None:
            self._waiting.append(line)
            del self._waiting[1_000:-1_000]
        else:
            self._append([line])

    def trains(self):
        """Make the folder: this process makes updates."""
        if self._folder is None:
            folder = Path(self.options.folder, f"process-{self._pid}")
            folder.mkdir(parents=True, exist_ok=True)
            self._folder = folder
            self._append(self._waiting)
            self._waiting = []

    def cannot(self, reason):
        """Say why an update could not be recorded, with the way out."""
        self.trains()
        self.event("cannot", reason=reason)
        say(reason)

    def write(self, number, document, arrays):
        """Write an update's files, each whole or not at all: the arrays first, since the document says that they are there."""
        self.trains()
        stem = f"update-{number}"
        _whole(self._folder / f"{stem}.safetensors", safetensors(arrays))
        _whole(self._folder / f"{stem}.json", json.dumps(_plain(document)).encode())
        self.recorded += 1

    def end(self):
        """Write the last event."""
        if self._folder is not None and os.getpid() == self._pid:
            self.event("end", updates=self.made, recorded=self.recorded)

    def sampled(self, prompt, completion):
        """Write a row as a sampler drew it: ids of prompt and completion, which ends with the first token that ends a row."""
        self._sampled += len(prompt) + len(completion)
        if completion and self.wanted and self._sampled <= MOST_SAMPLED:
            self.event("sampled", prompt=prompt, completion=completion, text=text(completion), update=self.made)

    def note(self, facts):
        """Write what the script says."""
        self._noted += 1
        self.event("note", update=self.made, **facts)

    def _append(self, lines):
        with (self._folder / "events.jsonl").open("a", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in lines)


_recording = None


def install():
    """Read the options, and give every script the function `gates_note`."""
    global _recording
    if _recording is None:
        _recording = Recording(Options(os.environ["GATES_XRAY"]))
        builtins.gates_note = gates_note
        atexit.register(_recording.end)
    return _recording


def recording():
    """Return the recording of this process."""
    return install()


NOTED = (
    "rewards",
    "groups",
    "advantages",
    "ids",
    "settings",
    "chosen",
    "desirable",
    "sampler_log_probs",
    "reference_log_probs",
    "mismatched",
)


def gates_note(**facts):
    """Say what no recorder sees; each is a list over the rows of the next update, in the order in which they were scored.

    Args:
        facts: of these,
            rewards: a number a row.
            groups: the prompt of each row, or its preference pair, as any number or text.
            advantages: a number a row, or a list a row with a number for each token of the completion.
            ids: the tokens of each row's completion, where the order is another.
            settings: in the words of `gates judge`, such as {"algorithm": "grpo", "epsilon_low": 0.2}.
            chosen: of preference pairs, whether each row is the chosen one.
            desirable: of KTO, whether each row is desirable.
            sampler_log_probs, reference_log_probs: a list a row with a number for each token of the completion.
            mismatched: of KTO, the log-ratios from which z0 is computed, not one a row.
    """
    unknown = [name for name in facts if name not in NOTED]
    if unknown:
        raise TypeError(f"gates_note() got an unknown fact {unknown[0]!r}, must be one of {', '.join(NOTED)}")
    if _recording is None:
        return
    _recording.note({name: _plain(value) for name, value in facts.items() if value is not None})


def say(sentence):
    """Print a sentence beside what the script prints."""
    sys.stderr.write(f"gates xray: {sentence}\n")
    sys.stderr.flush()


# ---------------------------------------------------------------------------------------------------- files


def _whole(path, content):
    """Write a file beside, and move it to its name."""
    handle, beside = tempfile.mkstemp(dir=path.parent, prefix=".")
    with os.fdopen(handle, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    Path(beside).replace(path)


def safetensors(arrays):
    """Return NumPy arrays as the bytes of a safetensors file: a length, a header in JSON, and the numbers."""
    import numpy as np

    names = {"float64": "F64", "float32": "F32", "int64": "I64", "int32": "I32", "bool": "BOOL", "uint8": "U8"}
    header, parts, at = {}, [], 0
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        content = array.tobytes()
        header[name] = {
            "dtype": names[array.dtype.name],
            "shape": list(array.shape),
            "data_offsets": [at, at + len(content)],
        }
        parts.append(content)
        at += len(content)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + b"".join(parts)


def _plain(value):
    """Return a value as JSON has it: arrays as lists, what JSON lacks as text."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    return str(value)


# ------------------------------------------------------------------------------------------------- tokens


def keys(ids, attended):
    """Return a key for each token of a row: equal for equal tokens after equal attended tokens.

    A key covers the attended tokens before a position and the token at it, attended or not.
    """
    digest, result = hashlib.blake2b(digest_size=8), []
    for token, counts in zip(ids, attended, strict=True):
        here = digest.copy()
        here.update(struct.pack("<q", int(token)))
        result.append(here.hexdigest())
        if counts:
            digest = here
    return result


def key_elsewhere(token, key, shift, hidden_at=""):
    """Return the key of a token whose scores lie elsewhere than at the attended token before it.

    Args:
        token: that is scored.
        key: of the token at which its scores lie.
        shift: how many positions these lie before it.
        hidden_at: their position, where the attention mask hides it.
    """
    return hashlib.blake2b(f"{key} {token} {shift} {hidden_at}".encode(), digest_size=8).hexdigest()


def padded_keys(rows, count):
    """Return the key of each column in a pass that attends to the padding before its row; empty where there is none."""
    padded = [""] * count
    for row in rows:
        if 1 in row["attended"] and not row["attended"][0]:
            whole = keys(row["ids"], [1] * len(row["ids"]))
            for key, column, counts in zip(whole, row["columns"], row["attended"], strict=True):
                if counts and column >= 0:
                    padded[column] = key
    return padded


def prompt_length(ids, attended, row_keys, ends):
    """Return how many attended tokens of a row the sampler was given, None where no call has been seen.

    Args:
        ids: the row's tokens.
        attended: 1 or 0 for each.
        row_keys: their keys.
        ends: keys of the last tokens of what samplers and passes without gradient were given.
    """
    front = next((k for k, counts in enumerate(attended) if counts), len(ids))
    last = max((k for k, counts in enumerate(attended) if counts), default=front)
    length = 0
    for key, counts in zip(
        row_keys[:last], attended[:last], strict=True
    ):  # a pass that scored the whole row ends at its last
        length += counts
        if counts and key in ends:
            return length
    if all(attended[front : last + 1]):
        return None
    whole = keys(ids[front:], [1] * (len(ids) - front))  # the sampler attended to tokens that the training pass hides
    place = next((k for k, key in enumerate(whole) if key in ends), None)
    return None if place is None else sum(attended[front : front + place + 1])


def identity(parts):
    """Return a text that is the same for the same parameters of a process."""
    return hashlib.blake2b(json.dumps(list(parts)).encode(), digest_size=8).hexdigest()


# ---------------------------------------------------------------------------------------------- the tokenizer

_tokenizer = None  # returns the tokenizer that the script used last


def install_tokenizer():
    """Remember the tokenizer of transformers that the script uses, for the text of its tokens; torch may be missing."""
    from transformers import tokenization_utils_base

    base = tokenization_utils_base.PreTrainedTokenizerBase
    for name in ("__init__", "__call__", "apply_chat_template", "encode", "batch_decode", "decode"):
        original = getattr(base, name, None)
        if original is not None:
            setattr(base, name, _remembering(original))


def _remembering(original):
    import gates_xray_encoded

    @functools.wraps(original)
    def method(self, *args, **kwargs):
        global _tokenizer
        _tokenizer = weakref.ref(self)
        result = original(self, *args, **kwargs)
        gates_xray_encoded.keep(result)
        return result

    return method


def tokenizer():
    """Return the tokenizer that the script used last, None if none has been seen."""
    return _tokenizer and _tokenizer()


def texts(ids):
    """Return the text of each token, None where no tokenizer has been seen."""
    seen = tokenizer()
    if seen is None:
        return None
    try:
        return [seen.decode([token]) for token in ids]
    except Exception:  # text is a comfort
        return None


def text(ids):
    """Return the text of tokens without special ones, None where no tokenizer has been seen."""
    try:
        return tokenizer().decode(ids, skip_special_tokens=True)
    except Exception:  # text is a comfort
        return None


def special_tokens():
    """Return the ids that end a row, and the one that pads, as far as the tokenizer says."""
    end = getattr(tokenizer(), "eos_token_id", None)
    return {"eos": [end] if isinstance(end, int) else [], "pad": getattr(tokenizer(), "pad_token_id", None)}


# ---------------------------------------------------------------------------------------------- least squares


def bins_for(columns, ranks=1):
    """Return the number of bins for so many columns: a power of 2, so that sketches of several ranks fold to the fewest."""
    return 1 << max(LEAST_BINS.bit_length() - 1, (BINS_PER_COLUMN * columns * ranks - 1).bit_length())


def unexplained(sketch, gradient):
    """Return the share of the gradient that the columns leave, and their coefficients.

    Args:
        sketch: (columns, bins).
        gradient: (bins,).
    """
    import numpy as np

    size = float(np.linalg.norm(gradient))
    norms = np.linalg.norm(sketch, axis=1)
    used = norms > 1e-12 * max(float(norms.max(initial=0.0)), 1e-300)
    coefficients = np.zeros(len(sketch))
    if size == 0.0 or not used.any():
        return (0.0 if size == 0.0 else 1.0), coefficients
    scaled = sketch[used] / norms[used, None]
    gram = scaled @ scaled.T
    values, vectors = np.linalg.eigh(gram)
    kept = values > 1e-13 * values[-1]
    inverse = (vectors[:, kept] / values[kept]) @ vectors[:, kept].T
    solution, left = np.zeros(int(used.sum())), gradient
    for _ in range(3):  # the Gram matrix squares the condition: refinement gives the digits back
        solution = solution + inverse @ (scaled @ left)
        left = gradient - solution @ scaled
    coefficients[used] = solution / norms[used]
    return float(np.linalg.norm(left)) / size, coefficients


def explains(share, noise):
    """Return whether what is left is no more than the arithmetic of the script gives."""
    return share <= EXPLAINED + NOISES * noise


class Clock:
    """Seconds of the recorder's own work."""

    def __init__(self):
        self._start = time.perf_counter()

    def __call__(self):
        """Return the seconds since the start."""
        return time.perf_counter() - self._start
