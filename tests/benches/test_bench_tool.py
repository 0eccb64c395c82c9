"""tools/bench.py reads asv's results: failed, n/a and slower benchmarks."""

import importlib.util
import json
import math
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("gates_tools_bench", ROOT / "tools" / "bench.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def result_file(folder: Path, **results: Any) -> Path:
    """Write a file like asv's: rows of columns, of which the last ones may be missing."""
    file = folder / "12345678-environment.json"
    record = {"result_columns": ["result", "params", "version"], "results": results}
    file.write_text(json.dumps(record), encoding="utf-8")
    return file


def test_values_have_the_names_of_their_parameters(tool: ModuleType, tmp_path: Path) -> None:
    """Values are in asv's order: the last parameter varies first."""
    file = result_file(
        tmp_path,
        **{
            "commands.Check.track_quick": [[9.5]],
            "kernels.Variants.time_call": [[1.0, None, math.nan, 4.0], [["'a'", "'b'"], ["1", "2"]], "v"],
        },
    )
    results = tool.values([file])
    assert results["commands.Check.track_quick"] == 9.5
    assert results["kernels.Variants.time_call('a', 1)"] == 1.0
    assert results["kernels.Variants.time_call('a', 2)"] is None
    assert math.isnan(results["kernels.Variants.time_call('b', 1)"])
    assert results["kernels.Variants.time_call('b', 2)"] == 4.0


def test_unavailable_benchmarks_are_counted_and_listed(tool: ModuleType) -> None:
    """By peer and by instruction set; a missing peer is not a failure."""
    ratio, variant = "against.TokenKlRatio.track_ratio", "kernels.Variants.time_call"
    results = {"measured": 1.0, f"{ratio}('token_kl k3 1x128 rlox')": math.nan}
    results |= {f"{ratio}('token_kl k3 1x512 rlox')": math.nan, f"{variant}('token_kl k3 1x128', 'neon', 2)": math.nan}
    lines, status = tool.summary(results)
    assert status == 0
    assert lines == [
        "1 of 4 benchmarks measured, 3 n/a, 0 failed",
        f"  n/a: {ratio}, rlox: 2",
        f"  n/a: {variant}, neon: 1",
    ]


@pytest.mark.parametrize(
    ("results", "message"),
    [
        ({}, "0 of 0 benchmarks measured"),
        ({"absent": math.nan}, "0 of 1 benchmarks measured"),
        ({"measured": 1.0, "broken": None}, "1 of 2 benchmarks measured, 0 n/a, 1 failed"),
    ],
    ids=["nothing", "nothing measured", "one failed"],
)
def test_failures_and_empty_runs_exit_with_1(tool: ModuleType, results: dict[str, Any], message: str) -> None:
    """The first line gives the reason."""
    lines, status = tool.summary(results)
    assert status == 1
    assert lines[0].startswith(message)


def test_a_long_list_of_failures_is_truncated(tool: ModuleType) -> None:
    lines, _ = tool.summary({"measured": 1.0, **{f"broken{i:03}": None for i in range(90)}})
    assert len(lines) == 2 + tool.LISTED
    assert lines[-1] == f"  failed: and {90 - tool.LISTED} more"


def test_suspects_are_arguments_of_compare(tool: ModuleType) -> None:
    """Only kernels above the factor are compared by pairs."""
    call = "kernels.Kernels.time_call('token_kl k3 32x512')"
    before = {call: 1.0, "kernels.Kernels.time_call('gae 8x512')": 1.0, "commands.Check.track_quick": 1.0}
    after = {call: 1.06, "kernels.Kernels.time_call('gae 8x512')": 1.04, "commands.Check.track_quick": 9.0}
    assert tool.slower(before, after) == ["token_kl k3 32x512"]


def test_the_configuration_has_absolute_paths(tool: ModuleType, tmp_path: Path) -> None:
    """Results can be written outside of the tree."""
    configuration = json.loads(tool.configuration(tmp_path, results_dir="/elsewhere").read_text())
    assert (configuration["repo"], configuration["results_dir"]) == (str(ROOT), "/elsewhere")
    commands = [*configuration["build_command"], *configuration["install_command"]]
    assert not any("{conf_dir}" in line for line in commands)
    assert str(ROOT / "constraints.txt") in commands[0]


def test_head_at_the_merge_base_is_not_compared(tmp_path: Path) -> None:
    """The message is one sentence, and the exit code 0."""
    line = [sys.executable, "tools/bench.py", "--continuous", "HEAD"]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    if "differ from HEAD" in done.stdout:
        pytest.skip("benches/ is being edited")
    assert (done.returncode, done.stdout) == (0, "HEAD is the merge base with HEAD: there is nothing to compare\n")
