"""The composite action: its inputs become valid options of `gates check`."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from gates.cli.verbs import app

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / ".github" / "actions" / "gates"
TEXT = (FOLDER / "action.yml").read_text()
ACTION: dict[str, Any] = yaml.safe_load(TEXT)
STEPS: list[dict[str, Any]] = ACTION["runs"]["steps"]
(CHECK,) = (step for step in STEPS if step.get("id") == "check")
STUB = '#!/bin/sh\nprintf "%s\\n" "$@" >"$RUNNER_TEMP/arguments"\nexit "${CODE:-0}"\n'
WRONG = """
import numpy as np

def token_kl(policy, reference, estimator, mask, lengths, reduction, old, kl_ratio):
    if lengths is not None or old is not None or reduction != "none":
        raise NotImplementedError("only per token")
    kl = reference - policy
    return {"kl": kl if mask is None else np.where(mask, kl, 0)}

OPS = {"token_kl": token_kl}
"""
SETTINGS = '[tool.gates]\nsubjects = ["ci/mine.py"]\n'
DEFAULTS = {name: entry["default"] for name, entry in ACTION["inputs"].items()}


def ran(folder: Path, code: int = 0, settings: str = SETTINGS, **inputs: str) -> tuple[list[str], int]:
    """Run the action's check in a project with a fake `gates`; return its arguments and the status."""
    program = folder / "gates" / "bin" / "gates"
    program.parent.mkdir(parents=True)
    program.write_text(STUB)
    program.chmod(0o755)
    python = program.parent / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    variables = {**DEFAULTS, **inputs}
    environment = {
        name: variables[re.sub(r"\$\{\{ inputs\.(\w+) \}\}", r"\1", value)] for name, value in CHECK["env"].items()
    }
    surroundings = {"PATH": os.environ["PATH"], "RUNNER_TEMP": str(folder), "GITHUB_OUTPUT": str(folder / "output")}
    script = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", CHECK["run"]]  # GitHub's `shell: bash`
    project = folder / "project"
    project.mkdir()
    (project / "pyproject.toml").write_text(settings)
    done = subprocess.run(script, env={**surroundings, **environment, "CODE": str(code)}, cwd=project, check=False)
    arguments = folder / "arguments"
    return arguments.read_text().splitlines() if arguments.is_file() else [], done.returncode


def real(folder: Path, **inputs: str) -> subprocess.CompletedProcess[str]:
    """Run the action's check in a folder with the real program."""
    program = folder / "gates" / "bin" / "gates"
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m gates "$@"\n')
    program.chmod(0o755)
    files = {name: str(folder / name) for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
    variables = {"SUBJECT": "", "SELECT": "", "PYTHON": "", "FORMAT": "github", "SEED": "", "ARGS": "", **inputs}
    surroundings = {"PATH": os.environ["PATH"], "GITHUB_ACTIONS": "true", "RUNNER_TEMP": str(folder)}
    script = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", CHECK["run"]]
    environment = {**surroundings, **files, **variables}
    return subprocess.run(script, env=environment, cwd=folder, capture_output=True, text=True, check=False)


def parsed(arguments: list[str]) -> dict[str, Any]:
    """Return the parameters that `gates` parses from a command line; raise if it is refused."""
    command = typer.main.get_command(app)
    verb, *rest = arguments
    context = command.commands[verb].make_context(verb, rest)  # type: ignore[attr-defined]
    return dict(context.params)


@pytest.mark.parametrize(
    ("inputs", "wanted"),
    [
        ({}, {"subject": None, "select": None, "form": "github", "python": "python"}),
        ({"subject": "a.py numpy"}, {"subject": ["a.py", "numpy"]}),
        ({"select": "kl loss.*", "args": "--quick --seed 3"}, {"select": ["kl", "loss.*"], "quick": True, "seed": 3}),
        ({"python": "", "format": "junit"}, {"python": None, "form": "junit"}),
        ({"args": "--shut-up"}, None),
    ],
    ids=["defaults", "subjects", "gates and arguments", "own python", "no such option"],
)
def test_inputs_reach_the_command_line(tmp_path: Path, inputs: dict[str, str], wanted: dict[str, Any] | None) -> None:
    """Each input becomes its option; globs are not expanded."""
    arguments, _ = ran(tmp_path, **inputs)
    if wanted is None:
        with pytest.raises(Exception, match="No such option"):
            parsed(arguments)
        return
    parameters = parsed(arguments)
    assert {name: parameters[name] or None for name in wanted} == wanted
    assert parameters["out"].parent == tmp_path


@pytest.mark.parametrize("hostile", ['"; touch owned; "', "$(touch owned)", "`touch owned`"])
@pytest.mark.parametrize("name", DEFAULTS)
def test_inputs_are_not_executed(tmp_path: Path, name: str, hostile: str) -> None:
    """Inputs are passed as environment variables, so that the shell does not execute them."""
    ran(tmp_path, **{name: hostile})
    assert not (tmp_path / "project" / "owned").exists()
    assert "inputs." not in CHECK["run"]


def test_nobody_to_judge_fails_the_step(tmp_path: Path) -> None:
    """GitHub only warns about a misspelt input, and then the shipped subjects must not turn the step green."""
    done = real(tmp_path, SUBJECT=" ")
    assert done.returncode == 2
    assert "nobody to judge" in done.stderr


def test_the_step_has_the_exit_code_of_gates(tmp_path: Path) -> None:
    """A failed gate fails the step, after the results are set as outputs."""
    assert ran(tmp_path, code=1)[1] == 1
    outputs = dict(line.split("=", 1) for line in (tmp_path / "output").read_text().splitlines())
    assert Path(outputs["results"]).name == outputs["name"]


@pytest.mark.slow
def test_a_failing_library_fails_the_step(tmp_path: Path) -> None:
    """With the real program: annotations, summary, counterexample and JSONL."""
    (tmp_path / "mine.py").write_text(WRONG)
    done = real(tmp_path, SUBJECT="./mine.py", SELECT="kl.k1*", ARGS="--quick")
    assert done.returncode == 1, done.stderr
    assert re.search(r"^::error file=\S*mine\.py,line=\d+,title=mine · token_kl\[k1\]::", done.stdout, re.MULTILINE)
    assert "**wrong**" in (tmp_path / "GITHUB_STEP_SUMMARY").read_text()
    outputs = dict(line.split("=", 1) for line in (tmp_path / "GITHUB_OUTPUT").read_text().splitlines())
    assert {path.suffix for path in Path(outputs["results"]).rglob("*") if path.is_file()} == {".jsonl", ".safetensors"}


def test_the_whole_folder_is_the_artifact() -> None:
    """`gates replay` needs the counterexamples of the folder."""
    (kept,) = (step["with"]["path"] for step in STEPS if "upload-artifact" in step.get("uses", ""))
    assert kept == "${{ steps.check.outputs.results }}"


def test_it_needs_no_compiler() -> None:
    """Gates is pure Python: neither cargo nor the kernels are installed, and downloads are kept between runs."""
    (install,) = (step["run"] for step in STEPS if "pip install" in step.get("run", ""))
    assert "cargo" not in TEXT
    assert "rlkernels" not in install
    (cache,) = (step["with"] for step in STEPS if "actions/cache" in step.get("uses", ""))
    assert cache["path"] == "${{ runner.temp }}/gates-pip"
    assert '--cache-dir "$RUNNER_TEMP/gates-pip"' in install


def test_every_input_and_output_is_used() -> None:
    """Declared inputs and outputs are used, and used ones are declared."""
    assert set(re.findall(r"inputs\.(\w+)", TEXT)) == set(DEFAULTS)
    used = {(step, name) for step, name in re.findall(r"steps\.(\w+)\.outputs\.([\w-]+)", TEXT) if step == "check"}
    assert {name for _, name in used} == set(re.findall(r'echo "(\w+)=', CHECK["run"]))


def test_other_actions_are_pinned() -> None:
    """Each is pinned to a commit, with its version as a comment."""
    used = re.findall(r"uses: (.*)", TEXT)
    assert used
    assert all(re.fullmatch(r"[\w/-]+@[0-9a-f]{40} # v[\d.]+", action) for action in used)


def test_it_installs_this_checkout() -> None:
    """The installed folder is the repository's root and has the constraints."""
    (install,) = (step["run"] for step in STEPS if "pip install" in step.get("run", ""))
    (up,) = re.findall(r'cd "\$GITHUB_ACTION_PATH/([./]+)"', install)
    assert (FOLDER / up).resolve() == ROOT
    assert (FOLDER / up / "constraints.txt").is_file()


def test_the_documented_workflow_is_valid() -> None:
    """It is YAML of at most ten lines, uses this action, and has valid inputs."""
    blocks = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "ci.md").read_text(), re.DOTALL)
    (workflow,) = (block for block in blocks if ".github/actions/gates" in block)
    assert len(workflow.splitlines()) <= 10
    steps = yaml.safe_load(workflow)["jobs"]["gates"]["steps"]
    (step,) = (step for step in steps if "actions/gates" in step.get("uses", ""))
    assert step["uses"].partition("@")[0].endswith(str(FOLDER.relative_to(ROOT)))
    assert set(step["with"]) <= set(DEFAULTS)
