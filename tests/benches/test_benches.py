"""The benchmarks run, and they refuse what must not be timed."""

from __future__ import annotations

import importlib
import inspect
import json
import math
import pkgutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import benches
import rlkernels
from benches import candidates, inputs

ROOT = Path(__file__).parents[2]
#: Recorded when the inputs were made: first reward of 16x4, first policy and reference log-probability of 1x128.
FIRST = [-0.47189413499185984, -3.8556020259857178, -3.913165807723999]
#: The same of later ones: first logit, id and uniform; of a step the first of each array; the first two lengths.
LATER = [
    -10.635891914367676,
    178.0,
    0.41960983643149063,
    -2.708862543106079,
    -2.6415672302246094,
    -2.673595428466797,
    -0.4490842819213867,
    1.0,
    1109.0,
    916.0,
]
#: What a benchmark may still read of the inputs when they are there: how large they are.
SIZES = SimpleNamespace(**{name: table for name, table in vars(inputs).items() if name.isupper()})


def benchmarks() -> list[Any]:
    """Every (class, method) that asv would find, with an id."""
    return [
        pytest.param(kind, method, id=f"{module.name}.{name}.{method}")
        for module in pkgutil.iter_modules(benches.__path__, "benches.")
        for name, kind in inspect.getmembers(importlib.import_module(module.name), inspect.isclass)
        for method in dir(kind)
        if kind.__module__ == module.name and method.startswith(("time_", "track_", "peakmem_"))
    ]


@pytest.mark.parametrize(("kind", "method"), benchmarks())
def test_first_parameters(kind: Any, method: str) -> None:
    """Set-up verifies the candidate, one call works, and what it returns is finite."""
    benchmark = kind()
    first = [values[0] for values in kind.params]
    benchmark.setup(*first)
    result = getattr(benchmark, method)(*first)
    assert (result is None) == method.startswith("time_")
    assert result is None or (math.isfinite(result) and result > 0)


@pytest.mark.parametrize(("kind", "method"), benchmarks())
def test_the_next_setup_verifies_nothing_anew(kind: Any, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Asv sets up before every sample: what is verified stays so, or verifying takes longer than timing."""
    first = [values[0] for values in kind.params]
    kind().setup(*first)
    for module in (candidates, importlib.import_module(kind.__module__)):
        for name in {"verify", "oracle", "inputs"} & set(vars(module)):
            monkeypatch.setattr(module, name, SIZES if name == "inputs" else None)
    again = kind()
    again.setup(*first)
    getattr(again, method)(*first)


def test_a_sample_goes_through_as_many_elements_whatever_the_shape() -> None:
    """A clock cannot time a call of a microsecond; a call on more elements than a sample has is made once."""
    calls: list[None] = []
    for elements, times in ((4, 32_768), (1000, 131), (candidates.ELEMENTS, 1), (10**9, 1)):
        calls.clear()
        candidates.sample(lambda: calls.append(None), elements)()
        assert len(calls) == times


def test_every_family_is_found() -> None:
    """Times of each family of ops, and ratios but where rlkernels is timed alone: an empty list would pass the test above."""
    found = {parameters.id for parameters in benchmarks()}
    families = {"advantages", "kl", "kernels", "logprobs", "sampling", "loss", "packing", "overhead"}
    assert {name.split(".")[1] for name in found} == families
    assert {name.split(".")[1] for name in found if ".track_" in name} == families - {"overhead", "kernels"}


def test_a_debug_build_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its times mean nothing."""
    monkeypatch.setattr(rlkernels, "build_info", lambda: {"profile": "debug"})
    with pytest.raises(RuntimeError, match="rlkernels is a debug build"):
        candidates.load("numpy")


@pytest.mark.parametrize("got", [[1.0, 2.1], [1.0, np.nan], [1.0]], ids=["wrong", "nan", "shape"])
def test_a_wrong_answer_is_not_timed(got: list[float]) -> None:
    """The check fails on a wrong value, a NaN and a wrong shape."""
    with pytest.raises((AssertionError, ValueError)):
        candidates.verify(np.array(got), np.array([1.0, 2.0]), 0.01)


@pytest.mark.alone
def test_the_ratio_sees_a_factor() -> None:
    """A twentieth of the work is well below a third of the time, on a busy machine too."""
    short, long = (lambda n=n: sum(range(n)) for n in (2_000, 40_000))
    assert candidates.ratio_of_medians(short, long, rounds=5, seconds=0.005) < 1 / 3
    assert candidates.ratio_of_medians(long, short, rounds=5, seconds=0.005) > 3


def test_inputs_never_change() -> None:
    """The first numbers of each family; a change here makes every recorded result mean something else."""
    rewards, group_size = inputs.rewards("16x4")
    policy, reference = inputs.log_probabilities("1x128")
    assert (rewards.shape, group_size, policy.shape) == ((64,), 4, (1, 128))
    assert [rewards[0], policy[0, 0], reference[0, 0]] == pytest.approx(FIRST, rel=1e-6)

    logits, ids, uniforms = inputs.logits("4x4096-peaked")
    step, lengths = inputs.step("4x64"), inputs.lengths("1000")
    assert (logits.shape, ids.shape, step["policy"].shape, lengths.shape) == ((4, 4096), (4,), (4, 64), (1000,))
    first = [logits[0, 0], ids[0], uniforms[0], *(step[name].flat[0] for name in step), *lengths[:2]]
    assert first == pytest.approx(LATER, rel=1e-6)


def test_numpy_is_the_pinned_one() -> None:
    """Asv's environment holds the same NumPy as ours."""
    pinned = json.loads((ROOT / "asv.conf.json").read_text())["matrix"]["req"]["numpy"]
    constraints = (ROOT / "constraints.txt").read_text().splitlines()
    assert [f"numpy=={version}" in constraints for version in pinned] == [True]
