"""Text from subjects and files is escaped, so that a terminal neither obeys, reorders nor hides it."""

import json
import sys
import unicodedata
from dataclasses import replace
from pathlib import Path
from typing import get_args
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from counterexample_doubles import SOME
from runs_on_file import header, verdict, write

from gates import cli
from gates.cli import counterexamples
from gates.config.format_names import ReportFormat
from gates.model import Evidence, Verdict, Waived
from gates.report.progress import Bar, console
from gates.report.text import Screen
from gates.results.calibration_records import CalibrationRecord, FalsePositiveRecord, NearestRecord
from gates.results.escape import visible
from gates.results.jsonl import Writer
from gates.results.records import CounterexampleRecord, MutantRecord, SubjectRecord, verdict_record
from gates.run.plan import Options
from gates.run.session import Tally
from gates.shrink import file as counterexample_file

# clear the screen, set the title (C1), erase the line, hide, reverse the order of reading, end of line for some readers
ATTACK = "a\x1b[2J\x9b31m\x07\r\b\x7f\x00\x85b\u202egnp\u2066\u200fc\u2028d\x0be"
SEEN = "a\\u001b[2J\\u009b31m\\u0007\\u000d\\u0008\\u007f\\u0000\\u0085b\\u202egnp\\u2066\\u200fc\\u2028d\\u000be"
REORDERING = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}


def control_characters(text: str) -> set[str]:
    """Return the characters that a terminal obeys, according to the Unicode database."""
    return {
        c
        for c in text
        if (unicodedata.category(c) in {"Cc", "Zl", "Zp", "Cs"} and c not in "\n\t")
        or unicodedata.bidirectional(c) in REORDERING
        or c in "\u200e\u200f\u061c"
    }


@pytest.fixture
def check(tmp_path: Path) -> Path:
    """Write a check in which every name, reason, location and version holds an escape sequence."""
    evidence = Evidence(ATTACK, float("inf"), "<=", 1.0, ATTACK, ATTACK)
    waived = Waived("wrong", ATTACK, ATTACK, ATTACK, ATTACK)
    cells = [
        verdict_record(Verdict(ATTACK, ATTACK, ATTACK, 1, "wrong", ATTACK, ATTACK, op=ATTACK, evidence=(evidence,))),
        verdict_record(Verdict(ATTACK, ATTACK, "waived", 1, "waived", ATTACK, ATTACK, op="op", waived=waived)),
        *(
            verdict(status, gate=status, subject=ATTACK, reason=ATTACK)
            for status in ("error", "skipped", "unsupported")
        ),
        verdict(gate=ATTACK, case=ATTACK),
    ]
    record = SubjectRecord(subject=ATTACK, provides=[ATTACK], versions={ATTACK: ATTACK})
    named = dict.fromkeys(("gate", "subject", "case", "file", "words"), ATTACK)
    small = CounterexampleRecord(**named, seed=0, elements_before=9, elements_after=1, finished=True)
    named = dict.fromkeys(("tool", "python", "numpy", "blas", "commit"), ATTACK)
    path = tmp_path / "a\x1b[2Jb\x9b.jsonl"
    write(path, cells, problems=[ATTACK], also=[record, small], command=[ATTACK], **named)
    return path


@pytest.fixture
def proof(tmp_path: Path) -> Path:
    """Write such a proof."""
    named = dict.fromkeys(("mutant", "mistake", "host", "seam", "source", "arises", "reason"), ATTACK)
    mutant = MutantRecord(**named, caught_by=[ATTACK], state="missed")
    cells = [verdict(), verdict("wrong", mutant=ATTACK, gate=ATTACK, reason=ATTACK)]
    write(tmp_path / "proof.jsonl", cells, verb="prove", also=[mutant])
    return tmp_path / "proof.jsonl"


@pytest.fixture
def calibration(tmp_path: Path) -> Path:
    """Write such a calibration."""
    path = tmp_path / "calibrate.jsonl"
    writer = Writer(path)
    writer.write(header(verb="calibrate", gates=[ATTACK], subjects=[ATTACK], planned=2, seeds=2))
    line = CalibrationRecord(
        **dict.fromkeys(("gate", "subject", "backend", "blas", "cpu"), ATTACK),
        full=False,
        commits=[ATTACK],
        seeds={"judged": {ATTACK: "0-1"}, "skipped": {ATTACK + "2": "0"}},
        retried={},
        false_positives=[FalsePositiveRecord(case=ATTACK, seed=1, status="wrong", cause=ATTACK, reason=ATTACK)],
        nearest=[NearestRecord(quantity=ATTACK, case=ATTACK, seed=0, share=0.5, observed=1.0, limit=2.0)],
    )
    writer.write(line)
    writer.close()
    return path


def printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str
) -> tuple[int, str, str]:
    """Run a command and return exit code, stdout and stderr."""
    monkeypatch.setattr(sys, "argv", ["gates", *arguments])
    try:
        cli.main()
        code = 0
    except SystemExit as ended:
        code = int(ended.code or 0)
    return code, *capsys.readouterr()


def test_control_characters_are_escaped() -> None:
    """Letters of any script and newlines are unchanged."""
    assert visible(ATTACK) == SEEN
    kept = "naïve ≤ −1 · 好 \u05d0\u05d1 👩\u200d💻\xa0\n\t\\u001b"
    assert visible(kept) == kept
    assert not control_characters(visible("".join(map(chr, range(0x11000)))))


@pytest.mark.parametrize("form", get_args(ReportFormat))
def test_a_report_of_a_check_is_escaped(
    check: Path, tmp_path: Path, form: ReportFormat, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In every format, with a baseline, and in the summary of a GitHub step."""
    summary = tmp_path / "summary.md"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    code, out, err = printed(monkeypatch, capsys, "report", str(check), "--format", form)
    assert (code, err) == (0, "")
    assert not control_characters(out)
    assert "\\u001b[2J\\u009b31m" in out
    if form in {"text", "md", "github", "json"}:
        baseline = check.with_name("other\x1b.jsonl")
        write(baseline, [verdict(gate=ATTACK, subject=ATTACK, case=ATTACK)], tool=ATTACK * 2)
        code, out, err = printed(
            monkeypatch, capsys, "report", str(check), "--format", form, "--baseline", str(baseline)
        )
        assert code == 0, err
        assert not control_characters(out)
        assert "new failure" in out
    if form == "github":
        assert not control_characters(summary.read_text())


def test_json_escapes_preserve_the_text(
    check: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A JSON parser returns the original characters."""
    _, out, _ = printed(monkeypatch, capsys, "report", str(check), "--format", "json")
    (run,) = json.loads(out)["runs"]
    assert run["verdicts"][0]["reason"] == ATTACK
    assert run["counterexamples"][0]["words"] == ATTACK
    _, out, _ = printed(monkeypatch, capsys, "report", str(check), "--format", "jsonl")
    assert json.loads(out.splitlines()[0])["reason"] == ATTACK


def test_junit_is_xml(check: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A parser accepts it, and characters that XML forbids are escapes or U+FFFD."""
    strange = verdict("wrong", subject="\uffff\ufffe<&>\"'\t\n]]>", reason="\uffff]]>&amp;\n\x00")
    write(check.with_name("strange.jsonl"), [strange])
    arguments = ("report", str(check), str(check.with_name("strange.jsonl")), "--format", "junit")
    _, out, _ = printed(monkeypatch, capsys, *arguments)
    top = ET.fromstring(out)  # noqa: S314  text that Gates wrote
    assert [suite.get("name") for suite in top] == [SEEN, "mine", "gates", "\ufffd\ufffd<&>\"'\t\n]]>"]
    (failure,) = list(top)[3].iter("failure")
    assert failure.text == failure.get("message") == "\ufffd]]>&amp;\n\\u0000"


@pytest.mark.parametrize("form", ["text", "md", "json", "html"])
@pytest.mark.parametrize("kind", ["proof", "calibration"])
def test_a_report_of_a_proof_or_calibration_is_escaped(
    request: pytest.FixtureRequest,
    kind: str,
    form: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Mutants, hosts, false positives and quantities too."""
    path = request.getfixturevalue(kind)
    code, out, err = printed(monkeypatch, capsys, "report", str(path), "--format", form)
    assert code == 0, err
    assert not control_characters(out)


def test_an_error_about_a_file_is_escaped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error names a case that was judged twice."""
    cell = verdict(gate=ATTACK, subject=ATTACK, case=ATTACK)
    path = tmp_path / "twice.jsonl"
    writer = Writer(path)
    for record in (header(planned=2), cell, cell):
        writer.write(record)
    writer.close()
    code, out, err = printed(monkeypatch, capsys, "report", str(path))
    assert (code, out) == (2, "")
    assert SEEN in err
    assert not control_characters(err)


@pytest.mark.parametrize("form", ["text", "github", "jsonl"])
def test_a_running_check_is_escaped(
    form: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Verdicts, missing requirements, the table, problems and the progress display."""
    monkeypatch.setenv("NO_COLOR", "1")
    evidence = Evidence(ATTACK, 2.0, "<=", 1.0, ATTACK, ATTACK)
    screen = Screen(3, form, verbose=True)  # type: ignore[arg-type]  # the parameter's values are this Literal's
    screen.verdict(Verdict(ATTACK, ATTACK, ATTACK, 0, "wrong", "bound", ATTACK, op=ATTACK, evidence=(evidence,)))
    screen.verdict(Verdict(ATTACK, ATTACK, ATTACK, 0, "wrong", "start", ATTACK))
    screen.verdict(Verdict(ATTACK, ATTACK, ATTACK, 0, "skipped", "absent", ATTACK))
    tally = Tally()
    tally.stale.append(ATTACK)
    screen.end(Path(ATTACK), tally, notes=[ATTACK])
    out = capsys.readouterr().out
    assert "\\u001b[2J\\u009b31m" in out
    assert not control_characters(out)


def test_smallest_inputs_are_escaped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The lines that `gates check` prints at its end."""
    writer = Writer(tmp_path / "run.jsonl")
    failures = counterexamples.Failures([], Options(), {}, writer, silent=False, budget_s=60.0, lines=[ATTACK])
    failures.show()
    writer.close()
    assert capsys.readouterr().out == SEEN + "\n"


@pytest.mark.parametrize("form", [[], ["--json"]], ids=["text", "json"])
def test_a_replay_is_escaped(
    tmp_path: Path, form: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both the printed counterexample and an error about its file are escaped."""
    path = tmp_path / "small.safetensors"
    fields = ("gate", "case", "subject", "entry", "kind", "reason", "words", "tool", "unit")
    known = replace(SOME, **dict.fromkeys(fields, ATTACK), inputs={"x": np.zeros(1)}, cut={"style": ATTACK})
    counterexample_file.write(path, known)
    _, out, err = printed(monkeypatch, capsys, "replay", str(path), "--subject", "numpy", *form)
    assert not control_characters(out + err)
    assert "[2J" in out + err


def test_emoji_codes_are_printed_unchanged(capsys: pytest.CaptureFixture[str]) -> None:
    """`:100:` and `:x:` in a file's location are not replaced by emoji."""
    text = "skipped: mine: mine.py:100: no such op :x:"
    console().print(text)
    Bar("b", 1, shown_on=console()).say(text)
    assert capsys.readouterr().out == f"{text}\n{text}\n"
