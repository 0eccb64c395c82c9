"""The checkout in the header of a results file: unknown without git's answer, never `clean`."""

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from gates.results import machine

HEAD = "c" * 40


@pytest.mark.parametrize(
    ("status", "wanted"),
    [
        ("", (HEAD, False)),
        (" M gates/results/machine.py\n", (HEAD, True)),
        (subprocess.TimeoutExpired("git", 10), (HEAD, None)),
        (subprocess.CalledProcessError(128, "git"), (HEAD, None)),
    ],
    ids=["clean", "dirty", "too slow", "refused"],
)
def test_a_checkout_without_git_status_is_not_clean(
    monkeypatch: pytest.MonkeyPatch, status: str | Exception, wanted: tuple[str, bool | None]
) -> None:
    """If `git status` fails or takes too long, the state is unknown."""

    def run(command: Sequence[str], *, check: bool = False, **rest: Any) -> Any:
        answer = f"{HEAD}\n" if "rev-parse" in command else status
        if isinstance(answer, Exception):
            if isinstance(answer, subprocess.TimeoutExpired) or check:
                raise answer
            answer = ""
        return subprocess.CompletedProcess(command, 0, answer, "")

    monkeypatch.setattr(machine.subprocess, "run", run)
    monkeypatch.setattr(machine, "__file__", str(Path(__file__).parent))  # below a folder with .git
    monkeypatch.setattr(Path, "exists", lambda path: True)
    assert machine.commit.__wrapped__() == wanted


def test_a_checkout_without_a_commit_has_no_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`git rev-parse HEAD` prints HEAD and fails if there is no commit yet."""
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    monkeypatch.setattr(machine, "__file__", str(tmp_path / "gates" / "machine.py"))
    assert machine.commit.__wrapped__() == (None, None)
