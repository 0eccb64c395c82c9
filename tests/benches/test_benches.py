"""The asv classes run and refuse wrong results, and their inputs never change."""

import importlib
import inspect
import json
import math
import pkgutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import benches
import rlkernels
from benches import against, calls, checked, commands, kernels, overhead, workloads
from gates_reference.kernels import KERNELS

ROOT = Path(__file__).parents[2]
#: Recorded when the inputs were made: first reward of 16x4, first policy and reference log-probability of 1x128.
FIRST = [-0.47189413499185984, -3.8556020259857178, -3.913165807723999]
#: Likewise of later inputs: first logit, id and uniform; of a step the first of each array; the first two lengths.
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
QUICK = [name for name in calls.CALLS if "151936" not in name]


def classes() -> list[type]:
    """Return every class that asv would find."""
    return [
        kind
        for module in pkgutil.iter_modules(benches.__path__, "benches.")
        for _, kind in inspect.getmembers(importlib.import_module(module.name), inspect.isclass)
        if any(method.startswith(("time_", "track_", "peakmem_")) for method in dir(kind))
        and not kind.__name__.startswith("_")
    ]


class TestKernels:
    """Calls of rlkernels."""

    @pytest.mark.parametrize("name", QUICK)
    def test_a_call_is_verified_and_runs(self, name: str) -> None:
        """Set-up compares the result with the oracle and sets the number of calls per sample."""
        benchmark = kernels.Kernels()
        benchmark.setup(name)
        assert benchmark.number == max(1, kernels.ELEMENTS // calls.CALLS[name]().elements)
        benchmark.time_call(name)

    def test_a_call_is_verified_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Asv calls set-up before every sample, so repeated verification would take longer than timing."""
        name = "token_kl k3 1x128"
        kernels.Kernels().setup(name)
        monkeypatch.setattr(checked, "CALLS", {})
        kernels.Kernels().setup(name)

    @pytest.mark.parametrize(
        "name",
        ["group_advantages 16x4", "token_kl k3 1x128", "policy_loss grpo 4x64 beta 0", "importance_ratio 32x2048"],
    )
    def test_a_wrong_result_is_not_timed(self, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """An error of 0.1% exceeds both an op's limit and the general one."""
        op = name.partition(" ")[0]
        right = getattr(rlkernels, op)

        def wrong(**keywords: Any) -> Any:
            result = right(**keywords)
            return type(result)(result.loss * 1.001, result.gradient, {}) if op == "policy_loss" else result * 1.001

        monkeypatch.setattr(rlkernels, op, wrong)
        with pytest.raises(AssertionError, match="error over limit"):
            checked.prepared.__wrapped__(name)

    def test_a_debug_build_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(rlkernels, "build_info", lambda: {"profile": "debug"})
        with pytest.raises(checked.DebugBuildError, match="rlkernels is a debug build"):
            checked.prepared.__wrapped__("group_advantages 16x4")

    def test_a_missing_instruction_set_is_not_available(self) -> None:
        missing = next(isa for isa in kernels.ISAS if isa not in rlkernels.available_isas())
        with pytest.raises(NotImplementedError, match=missing):
            kernels.Variants().setup(kernels.VARIED[0], missing, 1)

    def test_parameters_of_other_classes_are_calls(self) -> None:
        """Variants and memory benchmarks use calls of the table."""
        assert set(kernels.VARIED) | set(kernels.LARGE) <= set(calls.CALLS)

    def test_the_planned_shapes_exist(self) -> None:
        """Groups from 16x4 to 1024x32, 128 to 8192 tokens in one and in 32 sequences, and a vocabulary of 151,936."""
        wanted = {f"group_advantages {shape}" for shape in ("16x4", "64x8", "256x16", "1024x32")}
        wanted |= {f"token_kl k3 {rows}x{tokens}" for rows in (1, 32) for tokens in (128, 512, 2048, 8192)}
        assert wanted <= set(calls.CALLS)
        assert any(name.startswith("selective_log_softmax 16x151936") for name in calls.CALLS)
        assert {name.partition(" ")[0] for name in calls.CALLS} == set(KERNELS)


class TestOtherBenchmarks:
    """Call overhead, commands and ratios."""

    @pytest.mark.parametrize("call", overhead.CALLS)
    def test_small_calls_are_verified(self, call: str) -> None:
        """Results are compared with hand-computed ones."""
        benchmark = overhead.Overhead()
        benchmark.setup(call)
        benchmark.time_calls(call)

    def test_imports_are_timed(self) -> None:
        """The command line takes some hundredths of a second."""
        seconds = commands.Imports().track_import("gates.cli.verbs")
        assert 0 < seconds < 20

    @pytest.mark.parametrize("code", [0, 1])
    def test_the_quick_check_is_timed_if_it_holds(self, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
        """By a stand-in for the command, which `make check` runs case by case."""
        called: list[list[str]] = []

        def run(line: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
            called.append(line)
            return subprocess.CompletedProcess(line, code, "1 wrong", "")

        monkeypatch.setattr(commands.subprocess, "run", run)
        if code:
            with pytest.raises(RuntimeError, match="1 wrong"):
                commands.Check().track_quick()
        else:
            assert commands.Check().track_quick() >= 0
        subjects = [word for name in commands.SUBJECTS for word in ("--subject", name)]
        assert called == [[sys.executable, "-m", "gates", "check", "--quick", *subjects]]

    def test_ratios_have_a_class_for_each_op(self) -> None:
        classes_ = {name: kind for name, kind in vars(against).items() if name.endswith("Ratio") and name[0] != "_"}
        assert {"GroupAdvantagesRatio", "TokenKlRatio", "PolicyLossRatio", "PackSequencesRatio"} <= set(classes_)
        assert all(kind.params[0] for kind in classes_.values())
        assert len({kind.setup_cache for kind in classes_.values()}) == 1

    def test_a_row_without_a_ratio_is_not_available(self) -> None:
        """Absent and wrong peers are NaN, which asv shows as n/a."""
        benchmark = against.TokenKlRatio()
        assert math.isnan(benchmark.track_ratio({}, "row"))
        assert benchmark.track_ratio({"row": 2.0}, "row") == 2.0

    def test_classes_are_found(self) -> None:
        """Asv finds classes of every kind of measurement."""
        names = {kind.__name__ for kind in classes()}
        assert {"Kernels", "Variants", "Memory", "Overhead", "Imports", "Check", "TokenKlRatio", "Trainer"} <= names


def test_inputs_never_change() -> None:
    """The first numbers of each family; a change would invalidate recorded results."""
    rewards, group_size = workloads.rewards("16x4")
    policy, reference = workloads.log_probabilities("1x128")
    assert (rewards.shape, group_size, policy.shape) == ((64,), 4, (1, 128))
    assert [rewards[0], policy[0, 0], reference[0, 0]] == pytest.approx(FIRST, rel=1e-6)

    logits, ids, uniforms = workloads.logits("4x4096-peaked")
    step, lengths = workloads.step("4x64"), workloads.lengths("1000")
    assert (logits.shape, ids.shape, step["policy"].shape, lengths.shape) == ((4, 4096), (4,), (4, 64), (1000,))
    first = [logits[0, 0], ids[0], uniforms[0], *(step[name].flat[0] for name in step), *lengths[:2]]
    assert first == pytest.approx(LATER, rel=1e-6)


def test_asv_installs_the_same_versions() -> None:
    """Its environment has the wheels of HEAD, and their dependencies at the pinned versions."""
    kernels, install = json.loads((ROOT / "asv.conf.json").read_text())["install_command"]
    assert "tools/install_kernels.py {build_cache_dir}/kernels" in kernels
    assert "--constraint {conf_dir}/constraints.txt {wheel_file}[trainer]" in install
    assert np.__version__ in (ROOT / "constraints.txt").read_text()
