"""Passes with gradient that go on from a key-value cache: what their refusal says."""

import importlib
import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gates.xray import launch

MODULE = object()


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The recorder's module, with those beside it on the path."""
    names = {"gates_xray_mlx_cached", "gates_xray_cannot"} - set(sys.modules)
    monkeypatch.syspath_prepend(str(launch.RECORDER))
    yield importlib.import_module("gates_xray_mlx_cached")
    for name in names:
        sys.modules.pop(name, None)


def passes(*, step: int, overlap: int, length: int = 13, cached: bool = True) -> list[Any]:
    """Passes over two rows in steps, each with the token that it scores last."""
    ids, calls, held = np.arange(2 * length).reshape(2, length), [], 0
    for start in range(0, length - step, step - overlap):
        tokens = ids[:, start : start + step]
        calls.append(SimpleNamespace(ids=tokens[:, :-1], tokens=tokens, module=MODULE, cached=held if cached else None))
        held += step - 1
    return calls


def said(recorder: ModuleType, calls: list[Any]) -> str:
    with pytest.raises(Exception, match="goes on from a key-value cache") as caught:
        recorder.refuse(calls)
    return str(sys.modules["gates_xray_cannot"].sentence(caught.value))


def test_the_remedy_is_said_without_the_error(recorder: ModuleType) -> None:
    sentence = said(recorder, passes(step=4, overlap=1))
    assert sentence.startswith("a forward pass with gradient goes on from a key-value cache")
    assert sentence.endswith(
        "record a run that scores whole rows, without steps or with one as long as the longest row"
    )


def test_steps_that_do_not_overlap(recorder: ModuleType) -> None:
    """Three passes, and two rows: four tokens between them are no pass's target."""
    sentence = said(recorder, passes(step=4, overlap=0))
    assert "Between 2 of its passes and the next, 4 tokens in all are never scored" in sentence


def test_whole_rows_are_not_refused(recorder: ModuleType) -> None:
    recorder.refuse(passes(step=4, overlap=0, cached=False))


def test_other_errors_keep_their_names(recorder: ModuleType) -> None:
    try:
        recorder.refuse([SimpleNamespace()])
    except AttributeError as error:
        sentence = sys.modules["gates_xray_cannot"].sentence(error)
    assert sentence.startswith("an update could not be recorded: AttributeError: ")
    assert "gates_xray_mlx_cached.py:" in sentence
