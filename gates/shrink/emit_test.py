"""Turn a counterexample into a pytest file that fails while the bug exists and passes on a correct subject.

If the failing claim compares one output of one call with its definition, and the arrays are small, the test needs only
NumPy and the subject: it contains input, expected output and limit. Otherwise Gates judges a counterexample file in the
folder of the test.

A test is committed and runs on other machines, so it names only relative paths below the current folder.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from gates.config.own_subjects import OWN
from gates.model import ConfigurationError, Recipe, Subject
from gates.registry import Registry
from gates.results.atomic_write import write_new
from gates.run.compare import worst
from gates.run.inputs import with_model
from gates.run.trial import Comparison
from gates.shrink.file import Counterexample, write
from gates.shrink.moves import elements
from gates.shrink.probe import Answer, Asker, Call
from gates.worker.process import WorkerError

INLINE = 200  # largest number of array elements in a test file

PLAIN = '''"""{title}

{words}

Found by Gates in case {case} (seed {seed}), {size}. WANT is the output of
the gate's float64 definition; a correct implementation stays within LIMIT times SCALE of it.
"""

import importlib.util
import os
from pathlib import Path

import numpy as np

inf, nan = np.inf, np.nan  # as repr() writes them
SUBJECT = Path(__file__).parent / {entry!r}
OP, OUTPUT = {op!r}, {output!r}
INPUTS = {inputs}
WANT = np.array({want})
SCALE = np.array({scale})
LIMIT = {limit!r}


def load():
    """Load the subject's file; GATES_SUBJECT names another one."""
    path = Path(os.environ.get("GATES_SUBJECT") or SUBJECT)
    spec = importlib.util.spec_from_file_location("gates_subject", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_{name}():
    """{op}.{output} equals its definition within the limit."""
    got = np.asarray(load().OPS[OP](**INPUTS)[OUTPUT], dtype=np.float64)
    assert got.shape == WANT.shape
    same = (got == WANT) | (np.isnan(got) & np.isnan(WANT))
    assert np.all(same | (np.abs(got - WANT) <= LIMIT * SCALE)), f"got {{got.tolist()}}, want {{WANT.tolist()}}"

'''

JUDGED = '''"""{title}

{words}

Found by Gates in case {case} (seed {seed}), {size}; the input is in the file beside this one.
The test needs Gates, which judges that file again.
"""

import os
from pathlib import Path

from gates.shrink.replay import judge_file

FILE = Path(__file__).parent / {file!r}
SUBJECT = {subject}
PYTHON = os.environ.get("GATES_PYTHON") or {python}  # the interpreter of the library; None: this one
MODEL = os.environ.get("GATES_MODEL") or {model}  # None: the tiny one of the case
TIME_LIMIT = {time_limit}  # seconds of each call; None: those of the case


def test_{name}():
    """{gate} holds on this input."""
    answer = judge_file(FILE, os.environ.get("GATES_SUBJECT") or SUBJECT, PYTHON, MODEL, TIME_LIMIT)
    assert answer.state == "holds", answer.reason
'''


def emit(
    file: Path,
    counterexample: Counterexample,
    answer: Answer,
    subject: Subject,
    registry: Registry,
    out: Path | None,
    model: str | None = None,
    time_limit: float | None = None,
) -> Path:
    """Write the test, with the counterexample beside it if needed; never replace a file."""
    name = re.sub(r"\W+", "_", f"{counterexample.gate}_{counterexample.subject}").strip("_").lower()
    path = out or Path(f"test_{name}.py")
    if path.suffix != ".py" or not path.stem.isidentifier():
        raise ConfigurationError(f"--out {path}: pytest imports a test by its name; name it like test_bug.py")
    common = {
        "title": _inert(f"{counterexample.subject} fails {counterexample.gate}."),
        "words": _inert(counterexample.words),
        "case": counterexample.case,
        "seed": counterexample.seed,
        "size": _size(counterexample),
        "name": name,
    }
    plain = _plain(counterexample, answer, subject, registry)
    entry = _relative(subject.entry, path) or subject.entry.name  # a file elsewhere must be copied beside the test
    if plain:
        text = PLAIN.format(**common, **plain, entry=entry)
    else:
        inputs_file = path.with_suffix(".safetensors")
        shipped = subject.name in registry.subjects
        text = JUDGED.format(
            **common,
            gate=counterexample.gate,
            file=inputs_file.name,
            subject=repr(subject.name) if shipped else _beside(entry),
            python=None if shipped or not subject.python else _beside(_relative(Path(subject.python), path)),
            model=_model(model, path),
            time_limit=time_limit,
        )
        if inputs_file.resolve() != file.resolve():
            _require_new(inputs_file)
            write(inputs_file, _portable(counterexample, entry, model, path))
    _require_new(path)
    write_new(path, text)
    return path


def _relative(file: Path, test: Path) -> str:
    """Return a path relative to the test's folder, or "" if it is not below the current folder."""
    absolute = os.path.abspath(file)  # noqa: PTH100  not resolved, because the interpreter of an environment is a link
    if not Path(absolute).is_relative_to(Path.cwd()):
        return ""
    return os.path.relpath(absolute, test.resolve().parent)


def _beside(relative: str) -> str:
    """Return the Python expression of a path relative to the test; `None` for an empty path."""
    return f"str(Path(__file__).parent / {relative!r})" if relative else "None"


def _model(model: str | None, test: Path) -> str:
    """Return the Python expression of a model: a folder below the current one, or an id; `None` for other folders."""
    if model is None:
        return "None"
    return _beside(_relative(Path(model), test)) if Path(model).is_dir() else repr(model)


def _portable(counterexample: Counterexample, entry: str, model: str | None, test: Path) -> Counterexample:
    """Return a counterexample without the paths of this machine."""
    inputs = counterexample.inputs
    if model is not None and Path(model).is_dir():
        inputs = with_model(inputs, _relative(Path(model), test) or Path(model).name)
    return replace(counterexample, entry=entry, inputs=inputs)


def _size(counterexample: Counterexample) -> str:
    if counterexample.elements_after == counterexample.elements_before and not counterexample.finished:
        return "not shrunk"
    return f"shrunk from {counterexample.elements_before} to {counterexample.elements_after} {counterexample.unit}"


def _require_new(path: Path) -> None:
    if path.exists():
        raise ConfigurationError(f"{path} exists; name another file with --out")


def _inert(text: str) -> str:
    """Return text that cannot end a docstring and holds no escapes."""
    return text.replace("\\", "/").replace('"', "'")


def _plain(recorded: Counterexample, answer: Answer, subject: Subject, registry: Registry) -> dict[str, Any] | None:
    """Return the template values of a test without Gates, or None if the test needs Gates."""
    if subject.entry.suffix != ".py" or subject.settings or subject.preload:
        return None
    if elements(recorded.inputs) > INLINE or answer.failing is None:
        return None
    for comparison in answer.comparisons:
        if comparison.evidence is answer.failing:
            for call in answer.calls:
                output = _output(call, comparison)
                if output and _fair(call, output, comparison, registry):
                    return _pieces(call, output, comparison)
    return None


def _output(call: Call, comparison: Comparison) -> str:
    """Return the name of the output that equals the compared array, or ""."""
    if call.layout or call.outcome.kind != "value" or elements(call.inputs) > INLINE:
        return ""
    if any(isinstance(value, Recipe | dict) for value in call.inputs.values()):
        return ""  # a test cannot hold a model
    compared = np.asarray(comparison.got, np.float64)
    for name, value in call.outcome.value.items():
        array = np.asarray(value)
        if array.dtype.kind in "fiub" and np.array_equal(array.astype(np.float64), compared, equal_nan=True):
            return name
    return ""


def _fair(call: Call, output: str, comparison: Comparison, registry: Registry) -> bool:
    """Return whether the first trusted subject that answers would pass the test."""
    for name in OWN:
        asker = Asker(registry.subjects[name])
        try:
            outcome = asker.alive().call(call.op, call.inputs, limit_s=20.0)
        except WorkerError:
            continue
        finally:
            asker.close()
        if outcome.kind == "value" and np.shape(outcome.value[output]) == np.shape(comparison.want):
            error, _ = worst(outcome.value[output], comparison.want, comparison.scale)
            return error <= comparison.evidence.limit
    return False


def _pieces(call: Call, output: str, comparison: Comparison) -> dict[str, Any]:
    want = np.asarray(comparison.want, np.float64)
    scale = np.broadcast_to(np.asarray(comparison.scale, np.float64), want.shape)
    return {
        "op": call.op,
        "output": output,
        "inputs": _inputs({name: value for name, value in call.inputs.items() if name not in call.omitted}),
        "want": want.tolist(),
        "scale": scale.tolist(),
        "limit": comparison.evidence.limit,
    }


def as_call(call: Call) -> str:
    """Return a call as Python, without the arguments that were not passed; empty if it holds a model or is large."""
    if elements(call.inputs) > INLINE or any(isinstance(value, Recipe | dict) for value in call.inputs.values()):
        return ""
    passed = {name: value for name, value in call.inputs.items() if name not in call.omitted}
    return f"{call.op}({', '.join(f'{name}={_literal(value)}' for name, value in passed.items())})"


def _inputs(inputs: Mapping[str, Any]) -> str:
    lines = [f"    {name!r}: {_literal(value)}," for name, value in inputs.items()]
    return "\n".join(["{", *lines, "}"])


def _literal(value: Any) -> str:
    if isinstance(value, np.ndarray):
        shape = f".reshape({value.shape})" if 0 in value.shape else ""
        return f'np.array({value.tolist()}, dtype="{value.dtype}"){shape}'
    return repr(value)
