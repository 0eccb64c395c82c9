"""tools/bench.py reads asv's results: what failed, what is n/a, and what asv finds slower."""

from __future__ import annotations

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
    """A file as asv writes it: rows of columns, of which the last ones may be missing."""
    file = folder / "12345678-environment.json"
    record = {"result_columns": ["result", "params", "version"], "results": results}
    file.write_text(json.dumps(record), encoding="utf-8")
    return file


def test_values_have_the_names_of_their_parameters(tool: ModuleType, tmp_path: Path) -> None:
    """In asv's order: the last parameter varies first."""
    file = result_file(
        tmp_path,
        **{
            "commands.Check.track_quick": [[9.5]],
            "kernels.Variants.time_call": [[1.0, None, math.nan, 4.0], [["'a'", "'b'"], ["1", "2"]], "v"],
        },
    )
    found = tool.values([file])
    assert found["commands.Check.track_quick"] == 9.5
    assert found["kernels.Variants.time_call('a', 1)"] == 1.0
    assert found["kernels.Variants.time_call('a', 2)"] is None
    assert math.isnan(found["kernels.Variants.time_call('b', 1)"])
    assert found["kernels.Variants.time_call('b', 2)"] == 4.0


def test_what_is_not_available_is_counted_and_listed(tool: ModuleType) -> None:
    """By peer and by instruction set, all of them; it fails nothing, for a peer may be absent."""
    ratio, variant = "against.TokenKlRatio.track_ratio", "kernels.Variants.time_call"
    found = {"measured": 1.0, f"{ratio}('token_kl k3 1x128 rlox')": math.nan}
    found |= {f"{ratio}('token_kl k3 1x512 rlox')": math.nan, f"{variant}('token_kl k3 1x128', 'neon', 2)": math.nan}
    lines, status = tool.summary(found)
    assert status == 0
    assert lines == [
        "1 of 4 benchmarks measured, 3 n/a, 0 failed",
        f"  n/a: {ratio}, rlox: 2",
        f"  n/a: {variant}, neon: 1",
    ]


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ({}, "0 of 0 benchmarks measured"),
        ({"absent": math.nan}, "0 of 1 benchmarks measured"),
        ({"measured": 1.0, "broken": None}, "1 of 2 benchmarks measured, 0 n/a, 1 failed"),
    ],
    ids=["nothing", "nothing measured", "one failed"],
)
def test_a_run_that_measured_nothing_or_failed(tool: ModuleType, found: dict[str, Any], words: str) -> None:
    """Exit 1."""
    lines, status = tool.summary(found)
    assert status == 1
    assert lines[0].startswith(words)


def test_a_long_list_of_failures_is_cut(tool: ModuleType) -> None:
    """A screen holds it."""
    lines, _ = tool.summary({"measured": 1.0, **{f"broken{i:03}": None for i in range(90)}})
    assert len(lines) == 2 + tool.LISTED
    assert lines[-1] == f"  failed: and {90 - tool.LISTED} more"


def test_suspects_are_named_as_compare_takes_them(tool: ModuleType) -> None:
    """Kernels above the factor; other benchmarks are not compared by pairs."""
    call = "kernels.Kernels.time_call('token_kl k3 32x512')"
    before = {call: 1.0, "kernels.Kernels.time_call('gae 8x512')": 1.0, "commands.Check.track_quick": 1.0}
    after = {call: 1.06, "kernels.Kernels.time_call('gae 8x512')": 1.04, "commands.Check.track_quick": 9.0}
    assert tool.slower(before, after) == ["token_kl k3 32x512"]


def test_the_configuration_is_asv_conf_json_with_absolute_paths(tool: ModuleType, tmp_path: Path) -> None:
    """So that results can go elsewhere than into the tree."""
    found = json.loads(tool.configuration(tmp_path, results_dir="/elsewhere").read_text())
    assert (found["repo"], found["results_dir"]) == (str(ROOT), "/elsewhere")
    commands = [*found["build_command"], *found["install_command"]]
    assert not any("{conf_dir}" in line for line in commands)
    assert str(ROOT / "constraints.txt") in commands[0]


def test_nothing_to_compare(tmp_path: Path) -> None:
    """The merge base with itself: a sentence, and exit 0."""
    line = [sys.executable, "tools/bench.py", "--continuous", "HEAD"]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    if "differ from HEAD" in done.stdout:
        pytest.skip("benches/ is being edited")
    assert (done.returncode, done.stdout) == (0, "HEAD is the merge base with HEAD: there is nothing to compare\n")
