"""Files of format 1, from before verdicts were grades, are read."""

import json
from pathlib import Path

import pytest
from runs_on_file import verdict, write

from gates.model import ConfigurationError
from gates.report.formats import render
from gates.results.jsonl import read

WORDS = {"correct": "pass", "wrong": "fail"}


def old(path: Path) -> Path:
    """Write a run as format 1 had it: two statuses, no op, no level."""
    write(path, [verdict(), verdict("wrong", gate="loss"), verdict("unsupported", gate="u")], fail_on="imprecise")
    lines = []
    for line in map(json.loads, path.read_text().splitlines()):
        if line["record"] == "header":
            line["format"] = 1
            del line["fail_on"], line["definitions"]
        if line["record"] == "verdict":
            line["status"] = WORDS.get(line["status"], line["status"])
            del line["op"], line["level"]
            for item in line["evidence"]:
                del item["level"]
        if line["record"] == "summary":
            line["counts"] = {WORDS.get(name, name): n for name, n in line["counts"].items() if n}
        lines.append(json.dumps(line) + "\n")
    path.write_text("".join(lines))
    return path


def test_a_pass_is_correct_and_a_failure_wrong(tmp_path: Path) -> None:
    """The definitions keep their version; a report grades each op, or an unknown gate."""
    run = read(old(tmp_path / "old.jsonl"))
    assert [v.status for v in run.verdicts] == ["correct", "wrong", "unsupported"]
    assert (run.header.definitions, run.header.format, run.state) == ("1.1", 2, "complete")
    assert "1 wrong · 1 correct" in render("text", [run])


def test_an_invalid_line_is_refused(tmp_path: Path) -> None:
    path = old(tmp_path / "old.jsonl")
    path.write_text(path.read_text().replace('"kl.k3"', "7"))
    with pytest.raises(ConfigurationError, match=r"old.jsonl:1 is no record of Gates|old.jsonl:2 is no record"):
        read(path)
    path.write_text('{"record": "header", "format": 1}\nno json\n')
    with pytest.raises(ConfigurationError, match="is no record of Gates"):
        read(path)
