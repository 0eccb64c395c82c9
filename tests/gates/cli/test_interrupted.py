"""Ctrl-C and SIGTERM at any moment: one line, exit code 130, and verdicts are kept."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from command_line import RIGHT, await_verdict

from gates.results.jsonl import read

AT_IMPORT = "import os, signal\nos.kill(os.getpid(), signal.{name})\n"
LINE = "gates: interrupted\n"


def run(code: str, *arguments: str, cwd: Path) -> tuple[int, str, str]:
    """Run `main` after `code`, which schedules a signal, and return exit code, output and errors."""
    program = f"import sys\n{code}\nsys.argv = ['gates', *{arguments!r}]\nfrom gates.cli import main\nmain()"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False, cwd=cwd
    )
    return done.returncode, done.stdout, done.stderr


class TestWhilePythonImports:
    """A signal in the first half second."""

    @pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
    @pytest.mark.parametrize("module", ["typer", "gates.cli.verbs", "numpy", "pydantic"])
    def test_it_prints_one_line(self, tmp_path: Path, name: str, module: str) -> None:
        finder = f"""
import os, signal
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.{name})
        return None
sys.meta_path.insert(0, Finder())
"""
        assert run(finder, "check", "kl", cwd=tmp_path) == (130, "", LINE)
        assert not list(tmp_path.iterdir())

    def test_an_import_cannot_swallow_the_signal(self, tmp_path: Path) -> None:
        """Some modules catch every exception while they import an optional accelerator."""
        (tmp_path / "greedy.py").write_text("try:\n    import slow\nexcept BaseException:\n    pass\n")
        (tmp_path / "slow.py").write_text(AT_IMPORT.format(name="SIGINT"))
        code = f"sys.path.insert(0, {str(tmp_path)!r})\nimport typer.main\ntyper.main.get_command = lambda app: __import__('greedy')"
        assert run(code, "list", cwd=tmp_path) == (130, "", LINE)


def test_a_running_verb_reports_the_interruption(tmp_path: Path) -> None:
    """Typer alone would exit with 130 and no message."""
    code = "import signal\nfrom gates.cli import setup\nsetup.registry = lambda: signal.raise_signal(signal.SIGINT)"
    assert run(code, "list", cwd=tmp_path) == (130, "", LINE)


def test_a_signal_during_shutdown_prints_no_traceback(tmp_path: Path) -> None:
    """An exception during Python's shutdown would be printed with a traceback."""
    code = "import atexit, os, signal\natexit.register(lambda: os.kill(os.getpid(), signal.SIGINT))"
    status, _, errors = run(code, "list", "kl.k1", cwd=tmp_path)
    assert (status, errors) == (130, LINE)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_can_be_resumed(tmp_path: Path, number: int) -> None:
    """The worker has ended, the file is complete up to the last verdict, and the line has the command that resumes."""
    pid = tmp_path / "pid"
    slow = RIGHT.replace("    groups =", "    import time; time.sleep(0.3)\n    groups =", 1)
    (tmp_path / "mine.py").write_text(
        f"import os\nfrom pathlib import Path\n{slow}\nPath({str(pid)!r}).write_text(str(os.getpid()))\n"
    )
    command = [sys.executable, "-m", "gates", "check", "advantages", "--subject", "./mine.py", "--jobs", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path) as running:
        await_verdict(tmp_path / "results" / "runs")
        running.send_signal(number)
        _, errors = running.communicate(timeout=60)
    assert running.returncode == 130
    assert "interrupted: incomplete: " in errors
    assert "go on with: gates check advantages --subject ./mine.py" in errors
    (file,) = (tmp_path / "results" / "runs").glob("*.jsonl")
    assert file.read_bytes().endswith(b"\n")
    assert read(file).verdicts
    for _ in range(100):
        if not Path(f"/proc/{pid.read_text()}").exists():
            break
        time.sleep(0.05)
    else:
        pytest.fail("the worker is still there")
