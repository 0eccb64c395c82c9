"""Render recorded runs as JUnit XML: a suite per subject, a test case per gate × case, the evidence as properties.

What a subject does not declare (`unsupported`) is no test of it: most libraries have a few of the ops, and hundreds of skipped
tests would hide the one that was not run. A property of the suite has the number that is left out.

The elements are written as text, since a run may have a million properties. Control characters are escaped where those of
every format are, in `formats.pieces`.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from xml.sax.saxutils import escape

from gates.errors import MEANINGS, ExitCode
from gates.model import FAILURES, Grade, failing
from gates.report import smallest
from gates.report.labels import sentence, shown
from gates.results.jsonl import Results
from gates.results.records import CounterexampleRecord, VerdictRecord

RESULTS = {"error": "error", "skipped": "skipped", "not asked": "skipped", "waived": "skipped"}
COUNTS = {"errors": "error", "failures": "failure", "skipped": "skipped"}  # attributes of a suite
LEFT_OUT = "unsupported"
COMMAND = re.compile(r"^(?=\s*::)", re.MULTILINE)  # GitHub obeys such a line of a log, if the document is printed there


def junit_pieces(runs: Iterable[Results]) -> Iterator[str]:
    """Yield one document; an unfinished run, one that measured nothing, and each problem beside the verdicts is an error in it."""
    yield '<?xml version="1.0" encoding="UTF-8"?>\n<testsuites name="gates">\n'
    for run in runs:
        by_subject: dict[str, list[VerdictRecord]] = defaultdict(list)
        for verdict in run.verdicts:
            by_subject[verdict.subject].append(verdict)
        small = {smallest.verdict_key(item): item for item in run.counterexamples if item.file}
        for subject, verdicts in sorted(by_subject.items()):
            ordered = sorted(verdicts, key=lambda v: (v.gate, v.case))
            asked = [v for v in ordered if v.status != LEFT_OUT]
            fail_on = run.header.fail_on
            cases = [_case(v, small.get(smallest.verdict_key(v)), fail_on) for v in asked]
            yield _suite(run, subject, cases, left_out=len(ordered) - len(asked))
        if beside := _beside(run):
            yield _suite(run, "gates", [_problem(words) for words in beside])
    yield "</testsuites>\n"


def _beside(run: Results) -> list[str]:
    """Return what is wrong with a run beside its verdicts, so that a document without a failure is green only if all held."""
    if run.summary is None:
        return [run.state]
    nothing = [MEANINGS[ExitCode.NOTHING]] if run.summary.exit_code == ExitCode.NOTHING else []
    return [*run.summary.problems, *nothing]


@dataclass(frozen=True, slots=True)
class Case:
    """A written test case, and what its suite counts of it."""

    text: str
    result: str  # the element that it holds, if any
    seconds: float


def _suite(run: Results, name: str, cases: list[Case], left_out: int = 0) -> str:
    results = Counter(case.result for case in cases)
    attributes = {"name": name, "timestamp": run.header.started.partition("+")[0], "tests": str(len(cases))}
    attributes |= {counted: str(results[result]) for counted, result in COUNTS.items()}
    attributes["time"] = str(round(sum(case.seconds for case in cases), 3))
    properties = _properties([(f"left out: {LEFT_OUT}", str(left_out))]) if left_out else ""
    text = _element("testsuite", attributes, properties + "".join(case.text for case in cases))
    return text.replace("\ufffe", "\ufffd").replace("\uffff", "\ufffd") + "\n"  # XML 1.0 (§2.2, Char) excludes them


def _case(verdict: VerdictRecord, small: CounterexampleRecord | None, fail_on: Grade) -> Case:
    values = [("subject", verdict.subject), ("op", verdict.op), ("seed", str(verdict.seed)), ("status", shown(verdict))]
    values += [(item.quantity, sentence(item)) for item in verdict.evidence]
    if small:
        values += [("smallest input", small.file or ""), ("smallest input in words", small.words)]
    result = end = ""
    if verdict.status in FAILURES and verdict.status not in failing(fail_on):
        mild = f"{verdict.status}, which does not fail a run with --fail-on {fail_on}: {verdict.reason}"
        end = f"<system-out>{_text(mild)}</system-out>"
    elif verdict.status != "correct":
        result = RESULTS.get(verdict.status, "failure")
        words = f"{verdict.status}: {verdict.reason}" if result == "skipped" else verdict.reason
        more = f"{words}\n{smallest.sentence(small)}" if small else words
        end = _element(result, {"message": words, "type": verdict.cause}, _text(more))
    seconds = round(verdict.seconds, 4)
    attributes = {"name": verdict.case, "classname": verdict.gate, "time": str(seconds)}
    return Case(_element("testcase", attributes, _properties(values) + end), result, seconds)


def _problem(words: str) -> Case:
    error = _element("error", {"message": words, "type": "run"}, "")
    return Case(_element("testcase", {"name": words, "classname": "gates", "time": "0.0"}, error), "error", 0.0)


def _properties(values: Iterable[tuple[str, str]]) -> str:
    found = "".join(f'<property name="{_attribute(name)}" value="{_attribute(value)}" />' for name, value in values)
    return f"<properties>{found}</properties>"


def _element(tag: str, attributes: Mapping[str, str], inner: str) -> str:
    named = "".join(f' {name}="{_attribute(value)}"' for name, value in attributes.items())
    return f"<{tag}{named}>{inner}</{tag}>"


def _attribute(text: str) -> str:
    """Return text for an attribute; a parser would read its line ends and tabs as spaces (XML 1.0, §3.3.3)."""
    return escape(text).replace('"', "&quot;").replace("\n", "&#10;").replace("\t", "&#9;")


def _text(text: str) -> str:
    return escape(COMMAND.sub(r"\\", text))
