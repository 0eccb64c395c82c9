"""Describe a failure on small inputs: location, observed and expected values, and the inputs there."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from gates.model import Evidence, Op, Recipe
from gates.shrink import rollout_cut
from gates.shrink.file import Counterexample
from gates.shrink.flatten import RECIPE, flat, last, models
from gates.shrink.places import against_definition, named
from gates.shrink.probe import Answer
from gates.shrink.remarks import Index, remarks
from gates.shrink.simplify import DEFAULTS

LOCATION = re.compile(r"at \[([\d, ]+)\]: got (\S+), want (\S+)")  # the grammar of gates.run.compare.worst
FEW = 12  # size up to which an array is shown in full


def describe(
    answer: Answer, ops: tuple[Op, ...], inputs: Mapping[str, Any], cut: Mapping[str, Any] | None = None
) -> str:
    """Describe the failing claim or the exception in one sentence, with the cut of rollouts."""
    if cut:  # the amounts of the case would contradict the cut
        inputs = {name: value for name, value in inputs.items() if name not in rollout_cut.IN_CUT}
    return "; ".join(part for part in (_failure(answer, ops, inputs), rollout_cut.words(cut or {})) if part)


def _failure(answer: Answer, ops: tuple[Op, ...], inputs: Mapping[str, Any]) -> str:
    if answer.failing is None:
        return f"{answer.reason}; inputs: {_shown(inputs)}{_after(inputs, None)}"
    claim, plain = answer.failing, _plain(inputs)
    match = LOCATION.search(claim.where)
    shape = _shape(answer, claim)
    if match is not None and shape:
        index = tuple(int(i) for i in match[1].split(","))
        values = ", ".join(f"{name} {value}" for name, value in _at_index(plain, index, shape))
        sentence = f"{claim.quantity}: {named(ops, plain, index, shape)}: got {match[2]}, want {match[3]}"
        return f"{sentence}{f'; inputs there: {values}' if values else ''}{_after(plain, index)}"
    if "got " not in claim.where or match is not None:
        for name, index, whole, numbers, call_inputs in against_definition(answer, ops):
            where = f"{name}: {named(ops, call_inputs, index, whole)}" if index else name
            return (
                f"{claim.sentence()}; {where}: {numbers}; inputs: {_shown(inputs)}{_after(call_inputs, index or None)}"
            )
    return f"{claim.sentence()}; inputs: {_shown(inputs)}{_after(plain, None)}"


def _shape(answer: Answer, claim: Evidence) -> tuple[int, ...]:
    """Return the shape of the compared array if an output has that shape, so that its indices apply to the inputs."""
    outputs = {np.shape(v) for call in answer.calls for v in call.outcome.value.values() if isinstance(v, np.ndarray)}
    shapes = [np.shape(c.got) for c in answer.comparisons if c.evidence is claim]
    return next((shape for shape in shapes if shape in outputs), ())


def _plain(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the inputs of the call, or of the first of two compared calls."""
    for value in inputs.values():
        if isinstance(value, dict) and any(isinstance(item, np.ndarray) for item in value.values()):
            return value
    return inputs


def _at_index(inputs: Mapping[str, Any], index: tuple[int, ...], shape: tuple[int, ...]) -> Iterator[tuple[str, str]]:
    for name, value in inputs.items():
        if isinstance(value, np.ndarray) and value.ndim and value.shape == shape[: value.ndim]:
            yield name, _number(value[index[: value.ndim]])


def _after(inputs: Mapping[str, Any], index: Index) -> str:
    return "".join(f"; {text}" for text in remarks(inputs, index))


def shown_inputs(counterexample: Counterexample) -> Iterator[tuple[str, str]]:
    """Yield name and value of each input that is not a default, without the amounts that a cut of rollouts replaces."""
    hidden = rollout_cut.IN_CUT if counterexample.cut else ()
    yield from _pairs({name: value for name, value in counterexample.inputs.items() if name not in hidden})


def _shown(inputs: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in _pairs(inputs))


def _pairs(inputs: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the inputs as text; None, defaults, and values equal in both calls are omitted."""
    seen: dict[str, str] = {}
    yield from ((name, _model(v.spec)) for name, v in inputs.items() if isinstance(v, Recipe) and v.kind == "model")
    table = flat(inputs)
    hidden = models(table)
    for path, value in table.items():
        name, text = last(path), _value(value)
        if (
            path in hidden
            or name in {RECIPE, "kind"}
            or value is None
            or seen.get(name) == text
            or (_is_number(value) and value == DEFAULTS.get(name))
        ):
            continue
        seen.setdefault(name, text)
        yield path, text


def _model(spec: Mapping[str, Any]) -> str:
    """Return the path of a real model, or the settings of a tiny one."""
    settings = [
        f"{spec[name]}{unit}" for name, unit in (("family", ""), ("bits", " bits"), ("dtype", "")) if name in spec
    ]
    return repr(spec["path"]) if "path" in spec else f"tiny ({', '.join(settings)})" if settings else "tiny"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _value(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.tolist()}" if value.size <= FEW else f"{value.dtype}{list(value.shape)}"
    if isinstance(value, list) and any(isinstance(item, np.ndarray) for item in value):
        return repr([item.tolist() for item in value]) if sum(map(len, value)) <= FEW else f"{len(value)} arrays"
    return repr(value)


def _number(value: Any) -> str:
    return f"{float(value):.6g}" if np.asarray(value).dtype.kind == "f" else str(value.item())
