"""Results files from untrusted sources: one sentence and exit code 2, or a documented result."""

import gzip
import json
import os
import random
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import records

from gates import cli
from gates.cli import setup
from gates.model import DEFAULT
from gates.registry import load
from gates.results.read_lines import LINE_LIMIT
from gates.run import session
from gates.run.plan import Options, plan
from gates.run.shards import Shard

WHAT = ["check", "philox.known-answers", "preference.simpo", "--subject", "numpy", "--quick", "--jobs", "1"]
Line = dict[str, Any]
Change = Callable[[list[Line]], object]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> list[Line]:
    """Return the lines of a complete run: header, six verdicts, summary."""
    registry = load()
    gates = registry.select(("philox.known-answers", "preference.simpo"))
    options = Options(jobs=1, threads=setup.threads(1), quick=True)
    subject = [s for s in registry.subjects.values() if s.name == "numpy"]
    cases = plan(gates, subject, quick=True)
    head = session.header(
        session.RunInfo("check", WHAT, gates, subject, options, len(cases), plan=Shard().record(cases), fail_on=DEFAULT)
    )
    path = tmp_path_factory.mktemp("whole") / "whole.jsonl"
    records.write(path, records.whole([c.names for c in cases], head, ["correct", "unsupported"]))
    return [json.loads(line) for line in path.read_text().splitlines()]


def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Run a command in this process and return exit code, stdout and stderr."""
    monkeypatch.setattr(sys, "argv", ["gates", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    out, err = capsys.readouterr()
    return int(ended.value.code or 0), out, err


def text(lines: list[Line]) -> bytes:
    return "".join(json.dumps(line) + "\n" for line in lines).encode()


def raw(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def link(path: Path, target: Path | str) -> Path:
    path.symlink_to(target)
    return path


def nested(path: Path) -> Path:
    path.mkdir()
    return path


def pipe(path: Path) -> Path:
    os.mkfifo(path)
    return path


FILES: dict[str, tuple[Callable[[Path, bytes], Path], str]] = {
    "empty": (lambda p, d: raw(p, b""), "has no complete line"),
    "newlines": (lambda p, d: raw(p, b"\n\n\n"), ":1 is no record"),
    "one torn line": (lambda p, d: raw(p, d[:100]), "has no complete line"),
    "random bytes": (lambda p, d: raw(p, random.Random(0).randbytes(5000)), ":1 is no record"),  # noqa: S311  no secret
    "zeros": (lambda p, d: raw(p, bytes(5000) + b"\n"), ":1 is no record"),
    "zeros after a crash": (lambda p, d: raw(p, d + bytes(4096) + b"\n"), "is no record"),
    "gzip": (lambda p, d: raw(p, gzip.compress(d, mtime=0) + b"\n"), ":1 is no record"),
    "utf-16": (lambda p, d: raw(p, d.decode().encode("utf-16")), ":1 is no record"),
    "byte order mark": (lambda p, d: raw(p, b"\xef\xbb\xbf" + d), ":1 is no record"),
    "latin-1": (lambda p, d: raw(p, d.replace(b'"because": "', b'"because": "\xe9')), "is no record"),
    "a page of HTML": (lambda p, d: raw(p, b"<!doctype html>\n<html></html>\n"), ":1 is no record"),
    "Python": (lambda p, d: raw(p, Path(__file__).read_bytes()), ":1 is no record"),
    "a list": (lambda p, d: raw(p, b"[" + b",".join(d.splitlines()) + b"]\n"), ":1 is no record"),
    "numbers": (lambda p, d: raw(p, b"1\n2\n"), ":1 is no record"),
    "deep nesting": (lambda p, d: raw(p, b"[" * 200_000 + b"\n"), ":1 is no record"),
    "deep objects": (lambda p, d: raw(p, b'{"a":' * 200_000 + b"\n"), ":1 is no record"),
    "a huge line": (lambda p, d: raw(p, d + b" " * (LINE_LIMIT + 2)), "has more than 16777216 bytes"),
    "a huge first line": (lambda p, d: raw(p, b"x" * (LINE_LIMIT + 2)), ":1 has more than 16777216 bytes"),
    "a huge number": (lambda p, d: raw(p, d.replace(b'"seed": 0', b'"seed": ' + b"9" * 9000, 1)), ":1 is no record"),
    "two files in one": (lambda p, d: raw(p, d + d), ":9 is a second header"),
    "a folder": (lambda p, d: nested(p), "no regular file|Is a directory"),
    "no file": (lambda p, d: p, "No such file"),
    "a dangling link": (lambda p, d: link(p, "nowhere"), "No such file"),
    "a link to itself": (lambda p, d: link(p, p.name), "Too many levels of symbolic links"),
    "a pipe": (lambda p, d: pipe(p), "no regular file"),
    "a device": (lambda p, d: link(p, "/dev/zero"), "no regular file"),
    "curves and bytes": (
        lambda p, d: raw(p, b'{"algorithm":"a","seed":0,"step":[1],"reward":[0.5],"start":0,"end":1}\n\xff\xfe\n'),
        ":2 is no JSON|:1 is no record",
    ),
    "curves of no hash": (
        lambda p, d: raw(p, b'{"algorithm":"a","seed":0,"measure":[],"step":[1],"start":0,"end":1}\n'),
        ":1 is no record",
    ),
    "curves of lists": (
        lambda p, d: raw(p, b'{"algorithm":[],"seed":0,"step":1,"reward":{},"start":"","end":null}\n'),
        ":1 is no learning curve|:1 is no record",
    ),
    "speed and bytes": (lambda p, d: raw(p, b'{"record":"speed-header"}\n\x00\n'), ":1 is no (speed )?record"),
}


def put(line: int, **fields: Any) -> Change:
    """Set fields of one line; None removes a field."""

    def change(lines: list[Line]) -> None:
        for name, value in fields.items():
            if value is None:
                del lines[line][name]
            else:
                lines[line][name] = value

    return change


def evidence(**fields: Any) -> Change:
    return lambda lines: lines[1]["evidence"][0].update(fields)


LINES: dict[str, tuple[Change, str]] = {
    "another format": (put(0, format=9), "is of format 9, this version reads format 2"),
    "no format": (put(0, format=None), "is of format None"),
    "a format as text": (put(0, format="1"), "is of format 1, this version"),
    "no header": (lambda lines: lines.pop(0), ":1 must be a header, is a verdict"),
    "the header later": (lambda lines: lines.insert(2, lines.pop(0)), ":1 must be a header"),
    "a second header": (lambda lines: lines.insert(3, lines[0]), ":4 is a second header"),
    "a field too many": (put(0, surprise=1), "it has `header.surprise`, which this version does not know"),
    "a field too few": (put(0, seed=None), "it lacks `header.seed`"),
    "planned as text": (put(0, planned="6"), "must be a whole number"),
    "planned as yes": (put(0, planned=True), "must be a whole number"),
    "planned below zero": (put(0, planned=-1), "greater than or equal to 0"),
    "planned not a number": (put(0, planned="nan"), "must be a whole number"),
    "planned too few": (put(0, planned=2), "is a verdict more than the 2"),
    "planned too many": (put(0, planned=9), "ends a run of 9 verdicts after 6"),
    "a verb of nobody": (put(0, verb="eat"), "is no record"),
    "shards without end": (
        put(0, plan={"digest": "0", "cells": 1, "shard": 1, "shards": 10**15}),
        "less than or equal to 10000",
    ),
    "a record of nobody": (put(2, record="surprise"), ":3 is no record"),
    "no record": (put(2, record=None), ":3 is no record"),
    "a status of nobody": (put(1, status="great"), ":2 is no record"),
    "seconds as a list": (put(1, seconds=[]), ":2 is no record"),
    "seconds as text": (put(1, seconds="soon"), ":2 is no record"),
    "seconds that are none": (put(1, seconds="nan"), ":2 took nan s, which is no time"),
    "seconds without end": (put(-1, seconds="inf"), ":8 took inf s, which is no time"),
    "seconds before the start": (put(1, seconds=-1.0), ":2 took -1 s, which is no time"),
    "evidence as an object": (put(1, evidence={}), ":2 is no record"),
    "evidence that lies": (evidence(observed=9.0), r"9 <= 2 holds; the numbers say otherwise"),
    "evidence that lies of nan": (evidence(observed="nan"), "nan <= 2 holds; the numbers say otherwise"),
    "a relation of nobody": (evidence(relation="~"), "is no record"),
    "half a surrogate": (put(1, reason="\ud800"), "is no record"),
    "a cell twice": (lambda lines: lines.insert(2, lines[1]), ":3 judges numpy · .* again, after .*:2"),
    "a cell in the place of another": (lambda lines: lines[2].update(lines[1]), ":3 judges numpy · .* again"),
    "a cell after the end": (lambda lines: lines.append(lines.pop(1)), "ends a run of 6 verdicts after 5"),
    "a line after the end": (
        lambda lines: lines.append({"record": "resume", "started": "", "judged": 1}),
        "follows the summary",
    ),
    "two ends": (lambda lines: lines.append(lines[-1]), "follows the summary"),
    "counts that lie": (
        lambda lines: lines[-1]["counts"].update({"correct": 6}),
        "counts 6 correct, the lines before it have 5",
    ),
    "an exit code that lies": (put(-1, exit_code=3), "says exit code 3; .* it is 0"),
    "a problem that fails nothing": (put(-1, problems=["stale"], exit_code=0), "says exit code 0; .* it is 1"),
    "an exit code of nobody": (put(-1, exit_code=7), "says exit code 7; after"),
    "a count of nobody": (lambda lines: lines[-1]["counts"].update({"great": 1}), "is no record"),
}


def commands(path: Path) -> dict[str, list[str]]:
    return {
        "report": ["report", str(path)],
        "merge": ["merge", str(path), "--out", str(path.parent / "merged.jsonl")],
        "resume": [*WHAT, "--resume", str(path)],
    }


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[[Path, str], None]:
    """Require one sentence and exit code 2 of every command that reads results, and an unchanged file."""

    def hold(path: Path, message: str) -> None:
        before = path.read_bytes() if path.is_file() else None
        for words_of in commands(path).values():
            code, out, err = run(monkeypatch, capsys, *words_of)
            assert code == 2, (words_of, out, err)
            assert len(err.splitlines()) == 1
            assert len(err) < 1000
            assert err.startswith("gates: ")
            assert re.search(message, err), err
        assert (path.read_bytes() if path.is_file() else None) == before
        assert not (path.parent / "merged.jsonl").exists()

    return hold


@pytest.mark.parametrize("name", FILES)
def test_other_files_are_refused(tmp_path: Path, whole: list[Line], refused: Callable[..., None], name: str) -> None:
    """Report, merge and resume refuse the file with one sentence that has the path."""
    make, message = FILES[name]
    refused(make(tmp_path / "r.jsonl", text(whole)), message)


@pytest.mark.parametrize("name", LINES)
def test_contradicting_lines_are_refused(
    tmp_path: Path, whole: list[Line], refused: Callable[..., None], name: str
) -> None:
    """Records that contradict the format or each other are refused with the line."""
    change, message = LINES[name]
    lines = json.loads(json.dumps(whole))
    change(lines)
    refused(raw(tmp_path / "r.jsonl", text(lines)), message)


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity"])
def test_bare_nan_and_infinity_are_refused(
    tmp_path: Path, whole: list[Line], refused: Callable[..., None], word: str
) -> None:
    """Python's JSON writer produces them, but they are not JSON."""
    lines = json.loads(json.dumps(whole))
    lines[1]["seconds"] = float(word)
    refused(raw(tmp_path / "r.jsonl", text(lines)), f"{word} is no JSON")


@pytest.mark.parametrize(
    ("change", "codes", "message"),
    [
        (lambda lines: None, (0, 0, 0), "5 correct, 1 unsupported; exit code 0"),
        (evidence(observed="nan", holds=False), (0, 0, 0), "5 correct"),
        (evidence(observed="-inf"), (0, 0, 0), "5 correct"),
        (lambda lines: lines.pop(), (0, 2, 0), "incomplete: 6 of 6"),
        (lambda lines: [lines.pop() for _ in range(3)], (0, 2, 0), "incomplete: 4 of 6"),
        (lambda lines: [lines.pop() for _ in range(7)], (0, 2, 0), "incomplete: 0 of 6"),
    ],
    ids=["untouched", "nan", "infinity", "no summary", "incomplete", "header only"],
)
def test_documented_files_are_accepted(
    tmp_path: Path,
    whole: list[Line],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    change: Change,
    codes: tuple[int, int, int],
    message: str,
) -> None:
    """Complete files are read, also through a link; incomplete ones are reported and resumed, but not merged."""
    lines = json.loads(json.dumps(whole))
    change(lines)
    data = text(lines)
    file = raw(tmp_path / "real.jsonl", data + (b'{"torn' if codes[1] else b""))
    path = link(tmp_path / "r.jsonl", file)
    outcomes = [run(monkeypatch, capsys, *command) for command in commands(path).values()]
    assert tuple(code for code, _, _ in outcomes) == codes, outcomes
    assert message in outcomes[0][1]
    assert not any("Traceback" in err for _, _, err in outcomes)
    assert file.read_bytes().startswith(data)


def test_the_tables_are_not_empty() -> None:
    assert len(FILES) + len(LINES) >= 40
