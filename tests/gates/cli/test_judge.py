"""`gates judge`: exit codes, screen, JSON, and the document of its format."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import here
from steps import write

from gates.recorded.fields import FLOATS, METRIC, METRICS, SETTINGS, TENSORS
from gates.subjects.peers import environments

ROOT = Path(__file__).parents[3]
DOCUMENT = (ROOT / "docs" / "recorded-steps.md").read_text(encoding="utf-8")


class TestVerb:
    """The command."""

    def test_a_correct_step_exits_with_0(self, tmp_path: Path) -> None:
        write(tmp_path / "step.safetensors")
        done = here("judge", "step.safetensors", cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
        lines = done.stdout.splitlines()
        assert lines[0].startswith("step.safetensors · 3 quantities judged · 3 correct")
        assert lines[-1] == "exit 0: 3 correct"
        assert len(lines) < 24

    def test_a_wrong_step_exits_with_1(self, tmp_path: Path) -> None:
        """The wrong quantity comes first, with its diagnosis."""
        write(tmp_path / "step.safetensors", mistake="mask", settings={"name": "run 7, step 3"})
        done = here("judge", "step.safetensors", cwd=tmp_path)
        assert done.returncode == 1
        lines = done.stdout.splitlines()
        assert lines[0].startswith("run 7, step 3 · 3 quantities judged · 1 wrong · 2 correct")
        assert lines[1].startswith("  WRONG        policy_loss[grpo]           computes: completion mask shifted by")
        assert lines[-1] == "exit 1: 1 wrong, 2 correct"

    def test_json_has_every_quantity(self, tmp_path: Path) -> None:
        write(tmp_path / "step.safetensors", mistake="ddof")
        done = here("judge", "step.safetensors", "--json", cwd=tmp_path)
        document = json.loads(done.stdout)
        assert (done.returncode, document["exit_code"], document["file"]) == (1, 1, "step.safetensors")
        grades = {quantity["quantity"]: quantity["grade"] for quantity in document["quantities"]}
        assert grades["group_advantages"] == "differs"  # another ddof is a choice of libraries
        assert grades["policy_loss[grpo]"] == "correct"

    def test_nothing_to_judge_exits_with_3(self, tmp_path: Path) -> None:
        left = ("loss", "gradient", "rewards", "metric.kl", "sampling")
        write(tmp_path / "step.safetensors", without=left)
        done = here("judge", "step.safetensors", cwd=tmp_path)
        assert done.returncode == 3
        assert "the file has no tensor `loss`" in " ".join(done.stdout.split())
        assert done.stdout.splitlines()[-1] == "exit 3: nothing was judged"

    @pytest.mark.parametrize("name", ["none.safetensors", "text.safetensors"])
    def test_an_unusable_file_exits_with_2(self, tmp_path: Path, name: str) -> None:
        (tmp_path / "text.safetensors").write_text("a log\n")
        done = here("judge", name, cwd=tmp_path)
        assert done.returncode == 2
        assert done.stderr.count("\n") == 1
        assert name in done.stderr

    def test_names_in_the_file_are_escaped(self, tmp_path: Path) -> None:
        """A file from another source cannot send escape sequences to the terminal."""
        write(tmp_path / "step.safetensors", settings={"name": "\x1b[31m::error::"})
        done = here("judge", "step.safetensors", cwd=tmp_path)
        assert "\x1b" not in done.stdout
        bad = write(tmp_path / "bad.safetensors", settings={"\x1b[31mx": "1"})
        assert "\x1b" not in here("judge", bad.name, cwd=tmp_path).stderr

    def test_help_has_examples(self, tmp_path: Path) -> None:
        done = here("judge", "--help", cwd=tmp_path)
        assert "gates judge step.safetensors --json" in " ".join(done.stdout.split())
        assert "docs/recorded-steps.md" in done.stdout


class TestDocument:
    """docs/recorded-steps.md describes the current format."""

    def test_every_tensor_is_listed(self) -> None:
        metric = f"| `{METRIC}NAME` | () | {', '.join(FLOATS)} | a logged metric |"
        for name, tensor in TENSORS.items():
            row = f"| `{name}` | {', '.join(tensor.shapes)} | {', '.join(tensor.dtypes)} | {tensor.meaning} |"
            assert row in DOCUMENT, row
        assert metric in DOCUMENT

    def test_every_setting_is_listed(self) -> None:
        for name, setting in SETTINGS.items():
            value = " ".join(f"`{choice}`" for choice in setting.choices) or setting.kind
            row = f"| `{name}` | {value} | {setting.meaning.replace('|', chr(92) + '|')} |"
            assert row in DOCUMENT, row

    def test_every_metric_is_listed(self) -> None:
        for name, definition in METRICS.items():
            assert f"| `{name}` | {definition} |" in DOCUMENT

    def test_the_example_output_is_current(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The block of a wrong step, without the finding and what is unsupported."""
        monkeypatch.setenv("COLUMNS", "120")
        (shown,) = re.findall(r"```text\n(wrong.safetensors.*?)```", DOCUMENT, re.DOTALL)
        write(tmp_path / "wrong.safetensors", mistake="mask")
        printed = here("judge", "wrong.safetensors", cwd=tmp_path).stdout.splitlines()
        assert printed[0].startswith(shown.splitlines()[0])
        assert [line for line in shown.splitlines()[1:] if line not in printed] == []


class TestExamples:
    """The programs under examples/recorded_steps."""

    def test_numpy(self, tmp_path: Path) -> None:
        program = ROOT / "examples" / "recorded_steps" / "make_step.py"
        done = subprocess.run(
            [sys.executable, str(program), "step.safetensors", "--mistake", "kl"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout == "wrote step.safetensors: the logged KL is averaged over padding too\n"
        assert here("judge", "step.safetensors", cwd=tmp_path).returncode == 1

    def test_plain_pytorch(self, tmp_path: Path) -> None:
        """A step of torch's autograd is correct."""
        python = os.environ.get("TORCH_PYTHON")
        if python is None:
            pytest.skip("TORCH_PYTHON names no interpreter with torch and safetensors")
        program = ROOT / "examples" / "recorded_steps" / "plain_pytorch.py"
        subprocess.run([python, str(program), "step.safetensors"], cwd=tmp_path, check=True, timeout=250)
        done = here("judge", "step.safetensors", cwd=tmp_path)
        assert done.returncode == 0, done.stdout
        assert done.stdout.splitlines()[-1] == "exit 0: 2 correct"

    @pytest.mark.long  # importing verl takes ten seconds
    def test_verl(self, tmp_path: Path) -> None:
        """A step of verl's own advantages and loss is correct."""
        environment = environments.environment("verl")
        if not environment.ready:
            pytest.skip("verl's environment is not ready: gates peers sync verl")
        program = ROOT / "examples" / "recorded_steps" / "verl_policy_loss.py"
        subprocess.run([environment.python, str(program), "step.safetensors"], cwd=tmp_path, check=True, timeout=250)
        done = here("judge", "step.safetensors", cwd=tmp_path)
        assert done.returncode == 0, done.stdout
        assert done.stdout.splitlines()[-1] == "exit 0: 1 correct"
