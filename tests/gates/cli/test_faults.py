"""Faults of the machine: one sentence with file and remedy, exit code 4, and no verdict is lost."""

import errno
import os
import resource
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import RIGHT, await_verdict, gates, here

from gates.errors import MEANINGS, ExitCode, FaultError, FullDiskError
from gates.results import atomic_write
from gates.results.jsonl import Writer, read
from gates.results.records import ResumeRecord

CHECK = ("check", "advantages.matches-definition", "--subject", "./mine.py", "--quick", "--jobs", "1")
FULL = Path("/dev/full")
ROOT = Path(__file__).resolve().parents[3]


def limited(*arguments: str, cwd: Path, **limits: int) -> subprocess.CompletedProcess[str]:
    """Run a command in a process with a limit: FSIZE, bytes of a file; NOFILE, open files."""

    def lower() -> None:
        for name, value in limits.items():
            resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (value, value))

    command = [sys.executable, "-m", "gates", *arguments]
    env = os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}  # modules that Python's start-up imports cannot be protected
    return subprocess.run(
        command, capture_output=True, text=True, cwd=cwd, timeout=120, check=False, preexec_fn=lower, env=env
    )


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with a subject."""
    (tmp_path / "mine.py").write_text(RIGHT)
    return tmp_path


def only(folder: Path) -> Path:
    (file,) = folder.glob("*.jsonl")
    return file


class TestFileSize:
    """A limit on the file size interrupts a write, like a full disk."""

    def test_a_check_keeps_its_verdicts(self, project: Path) -> None:
        """The incomplete line is removed, and the printed command judges the remaining cases."""
        done = limited(*CHECK, cwd=project, FSIZE=5_000)
        file = only(project / "results" / "runs")
        assert done.returncode == 4
        why, kept, resume = done.stderr.splitlines()
        assert why == (
            f"gates: cannot write results to {file.relative_to(project)}: File too large; raise the limit on the size of a file "
            "(ulimit -f unlimited)"
        )
        judged = len(read(file).verdicts)
        assert judged > 0
        assert kept.startswith(f"incomplete: {judged} of ")
        assert file.read_bytes().endswith(b"\n")
        assert resume.startswith("go on with: gates check ")
        again = here(*shlex.split(resume.partition("gates ")[2]), cwd=project)
        assert again.returncode == 0, again.stderr
        assert read(file).state == "complete"

    def test_a_run_that_cannot_start_leaves_no_file(self, project: Path) -> None:
        done = limited(*CHECK, cwd=project, FSIZE=100)
        assert (done.returncode, done.stderr.count("\n")) == (4, 1)
        assert not list((project / "results" / "runs").iterdir())

    @pytest.mark.parametrize(
        "arguments",
        [
            ("prove", "advantages.unscored-rewards", "--quick", "--jobs", "1"),
            ("calibrate", "advantages.unscored-rewards", "--subject", "numpy", "--seeds", "2", "--jobs", "1"),
            ("init", "mylib", "--op", "all"),
            ("report", "--schema", "--out", "schema.json"),
        ],
    )
    def test_other_verbs_leave_no_partial_file(self, tmp_path: Path, arguments: tuple[str, ...]) -> None:
        done = limited(*arguments, cwd=tmp_path, FSIZE=2_000)
        assert done.returncode == 4, done.stderr
        assert "File too large; raise the limit on the size of a file" in done.stderr
        assert "Traceback" not in done.stderr
        assert not [file for file in tmp_path.iterdir() if file.is_file()]
        for file in tmp_path.rglob("*.jsonl"):
            assert file.read_bytes().endswith(b"\n")

    def test_bytecode_is_not_cut_short(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """CPython keeps a truncated `.pyc` file, which no later run could import."""
        monkeypatch.setenv("PYTHONPYCACHEPREFIX", str(tmp_path / "bytecode"))
        monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
        code = (
            "import resource, runpy, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000)); "
            "sys.argv = ['gates', 'list']; runpy.run_module('gates', run_name='__main__')"
        )
        first = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, timeout=120, check=False
        )
        assert first.returncode == 0, first.stderr
        assert gates("list", cwd=tmp_path).returncode == 0


@pytest.mark.skipif(not FULL.exists(), reason="/dev/full is of Linux")
@pytest.mark.parametrize(
    "arguments",
    [("list",), ("--help",), ("ops", "token_kl"), CHECK, (*CHECK, "--format", "json"), ("report", "--schema")],
)
def test_a_full_output_ends_with_one_sentence(project: Path, arguments: tuple[str, ...]) -> None:
    """Python's default is a traceback, or exit code 120 with `Exception ignored`."""
    with FULL.open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "gates", *arguments],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            cwd=project,
            timeout=120,
            check=False,
        )
    assert done.returncode == 4
    assert "the output: No space left on device; free some space there" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("explain", "loss"),
        ("--help",),
        ("peers", "list"),
        ("report", "--schema"),
        CHECK,
        (*CHECK, "--format", "jsonl"),
        (*CHECK, "--format", "json"),
        pytest.param((*CHECK, "--format", "junit"), marks=pytest.mark.long),
        pytest.param((*CHECK, "--format", "github"), marks=pytest.mark.long),
    ],
    ids=" ".join,
)
def test_a_closed_pipe_ends_silently(project: Path, arguments: tuple[str, ...]) -> None:
    """`gates explain loss | head -1` prints no error and does not exit with 1, by which a subject failed."""
    command = [sys.executable, "-m", "gates", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=project) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdout.close()
        errors = running.stderr.read()
    assert (running.returncode, errors) == (141, b"")


def test_a_check_that_nobody_reads_keeps_its_verdicts(project: Path) -> None:
    """It stops, and its file can be resumed."""
    command = [sys.executable, "-m", "gates", *CHECK, "-v", "--out", "."]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=project) as running:
        assert running.stdout is not None
        running.stdout.close()
    assert running.returncode == 141
    assert read(only(project)).verdicts
    assert here(*CHECK, "--resume", only(project).name, cwd=project).returncode == 0


class TestOpenFiles:
    """A low limit on open files."""

    @pytest.mark.parametrize("number", [7, 8, 10, 12, 20])
    def test_the_message_names_the_remedy(self, project: Path, number: int) -> None:
        """No verdict blames the subject; with just enough files the run passes."""
        done = limited(*CHECK, cwd=project, NOFILE=number)
        if done.returncode == 0 and number > 8:
            return
        assert done.returncode == 4, done.stdout + done.stderr
        assert "Too many open files; raise the limit" in done.stderr
        assert "Traceback" not in done.stderr

    def test_a_subject_without_open_files_is_an_error(self, project: Path) -> None:
        """The judge has enough files and its worker has not: the status is `error`."""
        (project / "mine.py").write_text("raise OSError(24, 'Too many open files')")
        done = here(*CHECK, cwd=project)
        assert done.returncode == 4, done.stdout
        assert {verdict.status for verdict in read(only(project / "results" / "runs")).verdicts} == {"error"}


def test_a_run_ends_if_its_folder_is_removed(project: Path) -> None:
    """The system reports no error for writes to a removed file, so the run checks and stops."""
    slow = RIGHT.replace("    groups =", "    import time; time.sleep(0.5)\n    groups =", 1)
    (project / "mine.py").write_text(slow)
    command = [
        sys.executable,
        "-m",
        "gates",
        "check",
        "advantages",
        "--subject",
        "./mine.py",
        "--jobs",
        "1",
        "--out",
        "gone",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=project) as running:
        await_verdict(project / "gone")
        only(project / "gone").unlink()
        (project / "gone").rmdir()
        _, errors = running.communicate(timeout=60)
    assert running.returncode == 4
    assert "it was removed while the run wrote to it; begin the run again" in errors


class TestFullDisk:
    """The command goes on from another disk, never on the full one."""

    def test_the_copy_is_resumed(self, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The printed command runs as it is once ELSEWHERE is a folder."""
        write, left = os.write, iter(range(3))

        def full(fd: int, data: bytes) -> int:
            if data.startswith(b'{"record":') and next(left, None) is None:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return write(fd, data)

        monkeypatch.setattr(os, "write", full)
        done = here(*CHECK, cwd=project)
        monkeypatch.undo()
        file = only(project / "results" / "runs").relative_to(project)
        assert done.returncode == 4
        why, kept, resume = done.stderr.splitlines()[-3:]
        assert "No space left on device; free some space there, or write to another disk" in why
        assert f"they are in {file}" in kept
        lead, _, command = resume.partition(" go on with: ")
        assert lead == "with a folder ELSEWHERE on another disk"
        assert command.startswith(f"cp {file} ELSEWHERE/ && gates check ")
        assert command.endswith(f" --resume ELSEWHERE/{file.name}")
        (project / "ELSEWHERE").mkdir()
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        again = subprocess.run(
            ["sh", "-c", command], cwd=project, env={**os.environ, "PATH": path}, check=False, timeout=120
        )
        assert again.returncode == 0
        assert read(only(project / "ELSEWHERE")).state == "complete"

    def test_a_run_that_cannot_start_names_out(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(*_: object, **__: object) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(os, "open", refuse)
        with pytest.raises(FullDiskError, match="or write to another disk; choose a folder for results with --out"):
            Writer(tmp_path / "run.jsonl")


class TestWriter:
    """A line is written completely or not at all."""

    def test_a_partial_line_is_removed(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = tmp_path / "run.jsonl"
        writer = Writer(path)
        line = ResumeRecord(started="2026-11-23T00:00:00+00:00", judged=1)
        writer.write(line)
        before = path.read_bytes()
        write, calls = os.write, iter([True, False])

        def full(fd: int, data: bytes) -> int:
            if next(calls):
                return write(fd, data[:10])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(os, "write", full)
        with pytest.raises(
            FaultError, match="No space left on device; free some space there, or write to another disk"
        ):
            writer.write(line)
        writer.close()
        assert path.read_bytes() == before

    def test_a_read_only_file_system_is_a_fault(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """It is not a usage error: the same command worked before."""

        def refuse(*_: object, **__: object) -> int:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))

        monkeypatch.setattr(os, "open", refuse)
        with pytest.raises(FaultError, match="Read-only file system; allow writing there, or write to another folder"):
            Writer(tmp_path / "run.jsonl")

    @pytest.mark.parametrize("write", [atomic_write.write_whole, atomic_write.write_new])
    def test_an_atomic_write_leaves_nothing(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: object
    ) -> None:
        """Even if the error comes only when the bytes are flushed."""

        def full(_fd: int) -> None:
            raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(FaultError, match="cannot write"):
            write(tmp_path / "file", "text")  # type: ignore[operator]
        assert not list(tmp_path.iterdir())


def test_an_unexpected_error_exits_with_4(tmp_path: Path) -> None:
    """Python's exit code for a traceback, 1, would blame the subject in CI."""
    code = "import sys; from gates.cli import main, setup; setup.registry = lambda: 1 / 0; sys.argv = ['gates', 'list']; main()"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path, timeout=60
    )
    assert done.returncode == 4
    assert "ZeroDivisionError" in done.stderr
    assert "gates: unexpected ZeroDivisionError, and no verdict on a subject" in done.stderr


class TestExitCodes:
    """One table of exit codes in help and docs."""

    @pytest.mark.parametrize("arguments", [("--help",), ("check", "--help")])
    def test_help_lists_them(self, tmp_path: Path, arguments: tuple[str, ...]) -> None:
        text = " ".join(gates(*arguments, cwd=tmp_path).stdout.split())
        for code, meaning in MEANINGS.items():
            assert f"{code.value} {meaning}" in text

    def test_docs_ci_lists_them(self) -> None:
        text = (ROOT / "docs" / "ci.md").read_text()
        assert [code for code in ExitCode if f"\n| {code.value} | " not in text] == []
