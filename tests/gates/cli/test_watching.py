"""`gates check --watch`: judge again on change."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from command_line import RIGHT, here

from gates.cli import watching

WAITING = "waiting for a change"


def rounds(process: subprocess.Popen[str], errors: Path, count: int) -> str:
    """Wait until a watching command waits for the n-th time, and return what it has said."""
    end = time.monotonic() + 90
    while (text := errors.read_text()).count(WAITING) < count:
        assert process.poll() is None, text
        assert time.monotonic() < end, text
        time.sleep(0.05)
    return text


def test_a_change_is_judged_and_the_last_results_are_kept(tmp_path: Path) -> None:
    """A mistake while a file is edited is said, and the next change tries again; Ctrl-C ends it."""
    subject, errors = tmp_path / "mine_gates.py", tmp_path / "errors"
    subject.write_text(RIGHT)
    command = [sys.executable, "-m", "gates", "check", "advantages.constant-group-is-zero", "--watch", "--jobs", "1"]
    with errors.open("w") as said:
        process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=said, text=True)
    try:
        rounds(process, errors, 1)
        subject.write_text(RIGHT + "x = (\n")
        assert "was never closed" in rounds(process, errors, 2)
        subject.write_text(RIGHT)
        assert "mine_gates.py changed" in rounds(process, errors, 3)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    assert out.count("exit 0") == 2
    assert len(list((tmp_path / "results" / "runs").glob("*.jsonl"))) == 1


def test_a_file_that_comes_or_goes_is_a_change(tmp_path: Path) -> None:
    """So is one of another size; a file of another kind is not."""
    before = watching.snapshot([tmp_path])
    (tmp_path / "notes.txt").write_text("x")
    assert watching.snapshot([tmp_path]) == before
    (tmp_path / "helper.py").write_text("x")
    assert list(watching.snapshot([tmp_path])) == [tmp_path / "helper.py"]


@pytest.mark.parametrize("option", [("--record",), ("--shard", "1/2"), ("--resume", "x.jsonl")])
def test_it_does_not_go_with_one_results_file(tmp_path: Path, option: tuple[str, ...]) -> None:
    """Each round has its own."""
    done = here("check", "--watch", *option, cwd=tmp_path)
    assert done.returncode == 2
    assert "leave out --resume, --record and --shard" in done.stderr
