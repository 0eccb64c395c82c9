"""`gates xray` as its user types it."""

import json
import sys
from pathlib import Path

import pytest
from recordings import events, generated, write
from scenarios import advantages, grpo
from scripted import ONE_THREAD, interpreter, run_torch
from typer.testing import CliRunner, Result

from gates.cli.verbs import app

SCRIPT = Path(__file__).parent / "scripts" / "torch_grpo.py"


def xray(*arguments: str) -> Result:
    """Run the command in this process."""
    return CliRunner().invoke(app, ["xray", *arguments])


class TestUsage:
    """What is refused, and what ends without a reading."""

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ([], "needs a command after --"),
            (["--recording", "x", "--", "python", "y.py"], "one of them"),
            (["--out", "x.txt", "--", "python", "y.py"], "must end in .html (a page) or .json"),
            (["--out", "absent/x.html", "--", "python", "y.py"], "there is no folder"),
            (["--baseline", "absent.json", "--", "python", "y.py"], "no such file"),
            (["--", "no-such-program"], "no program 'no-such-program'"),
            (["--recording", "absent"], "is no folder"),
        ],
    )
    def test_what_cannot_be_done_is_said_first(self, arguments: list[str], message: str) -> None:
        """No script has run for minutes by then."""
        done = xray(*arguments)
        assert isinstance(done.exception, Exception)
        assert message in str(done.exception)

    def test_a_folder_that_is_not_empty_is_kept(self, tmp_path: Path) -> None:
        """A recording never mixes with what is there."""
        (tmp_path / "old").write_text("")
        assert "name a new folder" in str(xray("--keep", str(tmp_path), "--", "python").exception)

    def test_a_script_without_updates_measures_nothing(self) -> None:
        """Exit code 3, with what a script must do to be seen."""
        done = xray("--", sys.executable, "-c", "pass")
        assert done.exit_code == 3
        assert "no optimizer step was seen" in done.output

    def test_the_status_of_a_failed_script_is_said(self) -> None:
        """It is not taken for a reading."""
        done = xray("--", sys.executable, "-c", "raise SystemExit(7)")
        assert done.exit_code == 3
        assert "the script ended with 7" in done.output


class TestVerdict:
    """A script that has noted its rewards."""

    @pytest.mark.parametrize(
        ("algorithm", "options", "code"), [("grpo", (), 0), ("dapo", (), 1), ("dapo", ("--fail-on", "wrong"), 0)]
    )
    def test_a_verdict_that_fails_is_exit_1(
        self, algorithm: str, options: tuple[str, ...], code: int, tmp_path: Path
    ) -> None:
        update = grpo()
        note = {"event": "note", "update": 0, "advantages": advantages().tolist(), "settings": {"algorithm": algorithm}}
        events(write(tmp_path / "process-1", update), generated(), note)
        page, document = tmp_path / "x.html", tmp_path / "x.json"
        done = xray("--recording", str(tmp_path), "--out", str(page), "--out", str(document), *options)
        assert done.exit_code == code, done.output
        word = "correct" if algorithm == "grpo" else "DIFFERS"
        assert f"policy_loss[{algorithm}] {word}: " in done.output
        verdicts = json.loads(document.read_text())["updates"][0]["verdicts"]
        assert [verdict["status"] for verdict in verdicts] == [word.lower()]
        assert f"policy_loss[{algorithm}] {word.lower()}</span>" in page.read_text()


@pytest.mark.slow
class TestScript:
    """A script in PyTorch, unchanged."""

    def test_a_refactoring_that_changes_no_coefficient(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Exit code 0 against its own baseline, also when its kept recording is read again; 1 where the average changed."""
        page, document, folder = tmp_path / "x.html", tmp_path / "x.json", str(tmp_path / "kept")
        written = ["--out", str(page), "--out", str(document)]
        for name, value in ONE_THREAD.items():
            monkeypatch.setenv(name, value)
        first = xray("--keep", folder, *written, "--", interpreter(), str(SCRIPT))
        assert first.exit_code == 0, first.output
        assert "update 1" in first.output
        assert page.read_text().startswith("<!doctype html>")
        assert len(json.loads(document.read_text())["updates"]) == 2
        again = xray("--recording", folder, "--baseline", str(document))  # needs no framework
        assert again.exit_code == 0
        assert "no coefficient changed" in again.output
        run_torch(tmp_path / "other", [str(SCRIPT), "token-mean"])
        other = xray("--baseline", str(document), "--recording", str(tmp_path / "other"))
        assert other.exit_code == 1

    @pytest.mark.parametrize(
        ("mistake", "sentences"),
        [
            ("prompt", ["prompts train", "policy_loss WRONG: computes: the prompt trains too"]),
            ("no-ratio", ["no ratio acts"]),
            pytest.param(
                "end",
                ["the closing token trains in no row", "computes: the token that closes each completion is left out"],
                marks=pytest.mark.long,
            ),
            pytest.param("token-mean", ["computes: token mean over the step"], marks=pytest.mark.long),
            pytest.param("entropy", ["policy_loss correct"], marks=pytest.mark.long),
        ],
    )
    def test_a_mistake_is_read(self, mistake: str, sentences: list[str], tmp_path: Path) -> None:
        """Nothing is declared: the screen names it."""
        run_torch(tmp_path / "kept", [str(SCRIPT), mistake])
        shown = " ".join(xray("--recording", str(tmp_path / "kept")).output.split())
        assert [sentence for sentence in sentences if sentence not in shown] == []
