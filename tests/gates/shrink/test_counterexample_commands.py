"""From a failing check to a test in the user's repository."""

import json
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from command_line import here
from counterexample_doubles import changed, run_test

from gates.results.jsonl import read as read_results
from gates.shrink.file import read, write
from gates.shrink.moves import elements

ROOT = Path(__file__).resolve().parents[3]
WRONG_DDOF = """
import numpy as np

def group_advantages(rewards, group_size, *, scale, ddof, eps, eps_mode, baseline):
    groups = rewards.reshape(-1, group_size).astype(np.float64)
    centred = groups - groups.mean(axis=1, keepdims=True)
    divisor = groups.std(axis=1, ddof=0, keepdims=True) + eps
    varies = groups.max(axis=1, keepdims=True) > groups.min(axis=1, keepdims=True)
    advantages = np.divide(centred, divisor, out=np.zeros_like(centred), where=varies)
    return {"advantages": advantages.reshape(-1).astype(rewards.dtype)}

OPS = {"group_advantages": group_advantages}
CONVENTIONS = {"group_advantages": {"scale": ("group",), "eps_mode": ("add",), "baseline": ("mean",)}}
"""
DEAF = """
from gates.subjects.mlx_trainer import subject as reference

def rollout(**inputs):
    run = reference.OPS["rollout"](**inputs)
    return {**run, "tempered_logprobs": run["model_logprobs"]}

OPS = {"rollout": rollout}
"""
HANGS = """
import time

OPS = {"group_advantages": lambda **_: time.sleep(99)}
CONVENTIONS = {"group_advantages": {"nan_rewards": ("unscored",)}}
"""
POISONED = """
from gates.subjects.numpy_baseline import subject as plain

def policy_loss(**inputs):
    answer = plain.OPS["policy_loss"](**inputs)
    return {**answer, "loss": answer["loss"] + 0.0 * float(inputs["policy"].sum())}

OPS = {"policy_loss": policy_loss}
"""


class TestCommands:
    """From a failing check to a test in the user's repository."""

    def test_a_failure_becomes_a_test(self, tmp_path: Path) -> None:
        """`check` names the file, `replay` fails and then holds, and the emitted test needs no Gates."""
        (tmp_path / "mine.py").write_text(WRONG_DDOF)
        done = here("check", "advantages.matches-definition", "--subject", "./mine.py", "--out", "o", cwd=tmp_path)
        assert done.returncode == 1
        assert "(96 → 2 numbers): advantage: " in " ".join(done.stdout.split())
        (results,) = (tmp_path / "o").glob("*.jsonl")
        (record,) = read_results(results).counterexamples
        assert (record.elements_before, record.elements_after, record.finished) == (96, 2, True)
        line = next(x for x in results.read_text().splitlines() if '"record":"counterexample"' in x)
        jsonschema.validate(json.loads(line), json.loads((ROOT / "results" / "schema.json").read_text()))
        file = f"o/{record.file}"
        again = here("replay", file, cwd=tmp_path)
        assert again.returncode == 1
        assert again.stdout.startswith("fails: mine · advantages.matches-definition · group-mean-add-ddof1-float")
        assert here("replay", file, "--subject", "numpy", cwd=tmp_path).returncode == 0
        assert here("replay", file, "--subject", "reference", "--json", cwd=tmp_path).returncode in {0, 3}
        emitted = here("replay", file, "--emit-test", "--out", "tests/test_bug.py", cwd=tmp_path)
        assert emitted.returncode == 0, emitted.stderr
        test = tmp_path / "tests" / "test_bug.py"
        assert "import gates" not in test.read_text()
        assert run_test(test) == 1
        (tmp_path / "mine.py").write_text(WRONG_DDOF.replace("ddof=0", "ddof=ddof"))
        assert run_test(test) == 0
        assert here("replay", file, cwd=tmp_path).returncode == 0
        refused = here("replay", file, "--emit-test", "--out", "tests/test_bug.py", cwd=tmp_path)
        assert (refused.returncode, "exists; name another" in refused.stderr) == (2, True)

    def test_a_resumed_run_shrinks_earlier_failures(self, tmp_path: Path) -> None:
        """A resumed run with nothing left to judge shrinks the remaining failures."""
        (tmp_path / "mine.py").write_text(WRONG_DDOF)
        command = ["check", "advantages.matches-definition", "--quick", "--subject", "./mine.py"]
        assert here(*command, "--out", "o", cwd=tmp_path).returncode == 1
        (results,) = (tmp_path / "o").glob("*.jsonl")
        shutil.rmtree(results.with_suffix(".counterexamples"))
        whole = results.read_text().splitlines(keepends=True)
        kept = [line for line in whole if not line.startswith(('{"record":"counterexample"', '{"record":"summary"'))]
        assert len(kept) == len(whole) - 2
        results.write_text("".join(kept))
        done = here(*command, "--resume", str(results), cwd=tmp_path)
        assert (done.returncode, done.stdout.count("smallest input (")) == (1, 1)
        (record,) = read_results(results).counterexamples
        assert (tmp_path / "o" / str(record.file)).is_file()
        before = results.read_bytes()
        assert here(*command, "--resume", str(results), cwd=tmp_path).returncode == 1
        assert results.read_bytes() == before

    def test_a_claim_about_several_calls_needs_gates(self, tmp_path: Path) -> None:
        """If no single output is compared, the test runs the gate on the counterexample's file."""
        (tmp_path / "mine.py").write_text(POISONED)
        options = ["--quick", "--subject", "./mine.py", "--out", "o", "--strict"]
        done = here("check", "loss.padding-is-inert", *options, cwd=tmp_path)
        assert done.returncode == 1
        (file,) = (tmp_path / "o").glob("*/*.safetensors")
        assert elements(read(file).inputs) <= 10
        assert here("replay", str(file), "--emit-test", "--out", "test_bug.py", cwd=tmp_path).returncode == 0
        assert (tmp_path / "test_bug.safetensors").is_file()
        assert run_test(tmp_path / "test_bug.py") == 1
        assert run_test(tmp_path / "test_bug.py", "numpy") == 0

    def test_a_failing_rollout_becomes_a_test(self, tmp_path: Path) -> None:
        """The file holds the model's recipe and a cut, and the emitted test judges it again."""
        (tmp_path / "mine.py").write_text(DEAF)
        options = ["--quick", "--subject", "./mine.py", "--out", "o"]
        done = here("check", "rollout.log-probs.match-definition", *options, cwd=tmp_path)
        assert done.returncode == 1
        assert "at most 60 s each; Ctrl-C keeps the smallest so far" in done.stderr
        assert "(768 → 2 tokens)" in " ".join(done.stdout.split())
        (file,) = (str(path) for path in (tmp_path / "o").glob("*/*.safetensors"))
        assert here("replay", file, "--emit-test", "--out", "test_bug.py", cwd=tmp_path).returncode == 0
        assert run_test(tmp_path / "test_bug.py") == 1
        assert run_test(tmp_path / "test_bug.py", "reference") == 0

    @pytest.mark.slow
    def test_ctrl_c_ends_the_search_and_not_the_run(self, tmp_path: Path) -> None:
        """The results are complete, with the smallest failure so far."""
        (tmp_path / "mine.py").write_text(DEAF)
        options = ["rollout.log-probs.match-definition", "--quick", "--subject", "./mine.py", "--out", "o"]
        command = [sys.executable, "-m", "gates", "check", *options]
        with subprocess.Popen(command, stdout=-1, stderr=-1, text=True, cwd=tmp_path) as process:
            assert process.stderr is not None
            assert process.stderr.readline().startswith("shrinking the failure")
            time.sleep(0.5)  # during the search, which takes seconds
            process.send_signal(signal.SIGINT)
            errors, _ = process.communicate(timeout=120)
        assert process.returncode == 1
        errors = " ".join(errors.split())
        assert "when the search was ended" in errors or "it was stopped before anything smaller was found" in errors
        (results,) = (tmp_path / "o").glob("*.jsonl")
        assert read_results(results).summary is not None
        assert here("replay", str(next((tmp_path / "o").glob("*/*.safetensors"))), cwd=tmp_path).returncode == 1

    def test_a_timeout_is_not_shrunk(self, tmp_path: Path) -> None:
        """The output gives the reason; the file fails again, and so does its test."""
        (tmp_path / "mine.py").write_text(HANGS)
        options = ["--quick", "--subject", "./mine.py", "--out", "o", "--time-limit", "0.2"]
        done = here("check", "advantages.unscored-rewards", *options, cwd=tmp_path)
        assert "takes the whole time limit at each try" in " ".join(done.stdout.split())
        (file,) = (str(path) for path in (tmp_path / "o").glob("*/*.safetensors"))
        again = here("replay", file, "--subject", "numpy", cwd=tmp_path)
        assert (again.returncode, again.stdout.split(":")[0]) == (0, "holds")
        assert here("replay", file, "--subject", "numpy", "--emit-test", cwd=tmp_path).returncode == 0
        (test,) = tmp_path.glob("test_*.py")
        assert "not shrunk" in test.read_text()

    def test_an_emitted_test_has_the_time_limit(self, tmp_path: Path) -> None:
        """Of the command, else of the project; a call that hangs then fails the test as fast."""
        (tmp_path / "mine.py").write_text(HANGS)
        options = ["--quick", "--subject", "./mine.py", "--out", "o", "--time-limit", "0.2"]
        here("check", "advantages.unscored-rewards", *options, cwd=tmp_path)
        (file,) = (str(path) for path in (tmp_path / "o").glob("*/*.safetensors"))
        command = ["replay", file, "--emit-test", "--time-limit", "0.2", "--out", "test_bug.py"]
        assert here(*command, cwd=tmp_path).returncode == 0
        assert "TIME_LIMIT = 0.2  # seconds of each call" in (tmp_path / "test_bug.py").read_text()
        start = time.monotonic()
        assert run_test(tmp_path / "test_bug.py") == 1
        assert time.monotonic() - start < 60.0  # by its own limit the case gives a first call 100 s

    def test_a_library_that_is_not_installed_is_reported(self, tmp_path: Path) -> None:
        """The subject is skipped, and the line names interpreter and remedy."""
        (tmp_path / "mine.py").write_text("import no_such_library\nOPS = {}\n")
        done = here("check", "kl.k1*", "--quick", "--subject", "./mine.py", "--out", "o", cwd=tmp_path)
        assert done.returncode == 3
        assert f"{sys.executable} runs the file: install what it imports there" in " ".join(done.stdout.split())

    def test_the_command_to_replay_names_the_interpreter(self, tmp_path: Path) -> None:
        """The command runs unchanged, and so does the emitted test, which finds the subject in its folder."""
        (tmp_path / "mine.py").write_text(POISONED)
        python = ["--python", sys.executable]
        options = ["--quick", "--subject", "./mine.py", "--out", "o", "--strict", *python]
        done = here("check", "loss.padding-is-inert", *options, cwd=tmp_path)
        (line,) = (line for line in done.stdout.splitlines() if line.strip().startswith("gates replay "))
        assert line.endswith(f" --python {sys.executable}")
        file = line.split()[2]
        assert here("replay", file, *python, "--emit-test", "--out", "tests/test_bug.py", cwd=tmp_path).returncode == 0
        text = (tmp_path / "tests" / "test_bug.py").read_text()
        assert "Path(__file__).parent / '../mine.py'" in text
        assert str(tmp_path) not in text
        assert sys.executable not in text
        assert str(tmp_path).encode() not in (tmp_path / "tests" / "test_bug.safetensors").read_bytes()
        moved = tmp_path / "elsewhere"
        moved.mkdir()
        shutil.move(tmp_path / "tests", moved)
        shutil.move(tmp_path / "mine.py", moved)
        assert run_test(moved / "tests" / "test_bug.py") == 1
        assert run_test(moved / "tests" / "test_bug.py", "numpy") == 0

    def test_the_command_to_replay_names_a_file_elsewhere(self, tmp_path: Path) -> None:
        """A replay runs no file outside the current folder by itself, so the command names it, and runs unchanged."""
        (tmp_path / "here").mkdir()
        (tmp_path / "mine.py").write_text(WRONG_DDOF)
        options = ["--quick", "--subject", "../mine.py", "--time-limit", "30"]
        done = here("check", "advantages.matches-definition", *options, cwd=tmp_path / "here")
        (line,) = (line for line in done.stdout.splitlines() if line.strip().startswith("gates replay "))
        assert line.endswith(" --subject ../mine.py --time-limit 30")
        again = here(*shlex.split(line)[1:], cwd=tmp_path / "here")
        assert again.stdout.startswith("fails: mine · advantages.matches-definition · ")

    @pytest.mark.parametrize("by_project", [False, True])
    def test_a_replay_has_a_time_limit(self, tmp_path: Path, *, by_project: bool) -> None:
        """That of the option or of the project; the message of a timeout names the option."""
        (tmp_path / "mine.py").write_text(HANGS)
        if by_project:
            (tmp_path / "pyproject.toml").write_text("[tool.gates]\ntime_limit = 0.2\n")
        settings = {"scale": "group", "ddof": 1, "eps": 1e-4, "eps_mode": "add", "baseline": "mean"}
        case, inputs = "group-mean-add-ddof1-float32", {"rewards": np.array([0.0, 1.0]), "group_size": 2, **settings}
        gate = "advantages.matches-definition"
        entry = str(tmp_path / "mine.py")
        write(tmp_path / "c.safetensors", changed(gate=gate, case=case, inputs=inputs, subject="mine", entry=entry))
        done = here("replay", "c.safetensors", *([] if by_project else ["--time-limit", "0.2"]), cwd=tmp_path)
        assert done.returncode == 1
        assert "no answer within 1 s (0.2 s, and 0.8 s more for a first call" in done.stdout
        assert "--time-limit sets another limit" in done.stdout

    def test_a_replay_refuses_an_impossible_time_limit(self, tmp_path: Path) -> None:
        done = here("replay", "c.safetensors", "--time-limit=0", cwd=tmp_path)
        assert (done.returncode, "a time limit of 0 s" in done.stderr) == (2, True)

    def test_a_replay_runs_the_file_in_the_projects_interpreter(self, tmp_path: Path) -> None:
        """The interpreter of `[tool.gates]` replays the input too, from any folder of the project."""
        python = tmp_path / "venv" / "bin" / "python"
        python.parent.mkdir(parents=True)
        python.write_text(f'#!/bin/sh\nLIBRARY=here exec {sys.executable} "$@"\n')
        python.chmod(0o755)
        (tmp_path / "mine.py").write_text(f"import os\nos.environ['LIBRARY']\n{WRONG_DDOF}")
        (tmp_path / "pyproject.toml").write_text('[tool.gates]\nsubjects = ["mine.py"]\npython = "venv/bin/python"\n')
        (tmp_path / "below").mkdir()
        done = here("check", "advantages.matches-definition", "--quick", "--out", "o", cwd=tmp_path / "below")
        assert done.returncode == 1
        (file,) = (tmp_path / "below" / "o").glob("*/*.safetensors")
        again = here("replay", str(file), cwd=tmp_path)
        assert again.stdout.startswith("fails: mine · advantages.matches-definition · ")
        assert "did not start" not in again.stdout

    def test_nothing_is_shrunk_unless_requested(self, tmp_path: Path) -> None:
        """`--no-minimise` writes no file and no line."""
        (tmp_path / "mine.py").write_text(WRONG_DDOF)
        command = ["check", "advantages.matches-definition", "--subject", "./mine.py", "--out", "o", "--no-minimise"]
        assert here(*command, cwd=tmp_path).returncode == 1
        assert [path.suffix for path in (tmp_path / "o").iterdir()] == [".jsonl"]

    def test_a_data_file_does_not_choose_code(self, tmp_path: Path) -> None:
        """A subject file outside this folder must be named, and no text of the file becomes code of the test."""
        (tmp_path / "here").mkdir()
        (tmp_path / "evil.py").write_text("open('ran', 'w')")
        name = 'x"""\nopen("ran", "w")\n"""'
        evil = changed(entry=str(tmp_path / "evil.py"), subject=name, words='"""')
        write(tmp_path / "here" / "c.safetensors", evil)
        done = here("replay", "c.safetensors", cwd=tmp_path / "here")
        assert (done.returncode, "is not below this folder" in " ".join(done.stderr.split())) == (2, True)
        options = ["--subject", "numpy", "--emit-test", "--out", "test_c.py"]
        here("replay", "c.safetensors", *options, cwd=tmp_path / "here")
        run_test(tmp_path / "here" / "test_c.py")
        assert not list(tmp_path.rglob("ran"))

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["replay", "none"], "cannot read none"),
            (["replay", "c.safetensors"], "/nowhere/mine.py, does not exist here"),
            (["replay", "c.safetensors", "--subject", "nobody"], "must be one of"),
            (["replay", "c.safetensors", "--subject", "numpy", "--out", "x"], "give both"),
            (
                ["replay", "k.safetensors", "--subject", "numpy", "--emit-test", "--out", "test_k1.x.py"],
                "like test_bug.py",
            ),
            (["replay", "other.safetensors", "--subject", "numpy"], "gate 'gone' of the counterexample does not exist"),
        ],
        ids=["no file", "no subject", "nobody", "out alone", "no module", "no gate"],
    )
    def test_a_usage_error_is_one_sentence(self, tmp_path: Path, arguments: list[str], message: str) -> None:
        """Exit code 2 and no traceback."""
        write(tmp_path / "c.safetensors", changed())
        write(tmp_path / "other.safetensors", changed(gate="gone"))
        write(tmp_path / "k.safetensors", changed(case="right-none-float64", inputs={"policy": np.zeros(2)}))
        done = here(*arguments, cwd=tmp_path)
        assert done.returncode == 2
        assert message in " ".join(done.stderr.split())
        assert "Traceback" not in done.stderr
