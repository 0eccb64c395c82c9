"""Render recorded runs as JUnit XML: a suite per subject, a test case per gate × case, the evidence as properties.

What a subject does not declare (`unsupported`) is no test of it: most libraries have a few of the ops, and hundreds of skipped
tests would hide the one that was not run. A property of the suite has the number that is left out.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator

from junitparser import Error, Failure, Properties, Property, Skipped, TestCase, TestSuite

from gates.errors import MEANINGS, ExitCode
from gates.model import FAILURES, Grade, failing
from gates.report import smallest
from gates.report.diagnosis import named
from gates.report.labels import sentence, shown
from gates.results.escape import visible
from gates.results.jsonl import Results
from gates.results.records import CounterexampleRecord, VerdictRecord

RESULTS = {
    "error": Error,
    "skipped": Skipped,
    "not asked": Skipped,
    "waived": Skipped,
}
LEFT_OUT = "unsupported"
NO_CHARACTERS = str.maketrans("\ufffe\uffff", "\ufffd\ufffd")  # which XML 1.0 (§2.2, Char) excludes
COMMAND = re.compile(r"^(?=\s*::)", re.MULTILINE)  # GitHub obeys such a line of a log, if the document is printed there


def junit_pieces(runs: Iterable[Results]) -> Iterator[str]:
    """Yield one document; an unfinished run, a run that measured nothing, and each problem of a run is an error in it."""
    yield '<?xml version="1.0" encoding="UTF-8"?>\n<testsuites name="gates">\n'
    for run in map(named, runs):
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
        if problems := _problems(run):
            yield _suite(run, "gates", [_problem(words) for words in problems])
    yield "</testsuites>\n"


def _problems(run: Results) -> list[str]:
    """Return the problems of a run other than its verdicts, so that a document without a failure means that all held."""
    if run.summary is None:
        return [run.state]
    nothing = [MEANINGS[ExitCode.NOTHING]] if run.summary.exit_code == ExitCode.NOTHING else []
    return [*run.summary.problems, *nothing]


def _suite(run: Results, name: str, cases: list[TestCase], left_out: int = 0) -> str:
    suite = TestSuite(_legal(name))
    suite.timestamp = run.header.started.partition("+")[0]
    if left_out:
        suite.add_property(f"left out: {LEFT_OUT}", str(left_out))
    suite.add_testcases(cases)
    return str(suite.tostring(), "utf-8") + "\n"


def _case(verdict: VerdictRecord, counterexample: CounterexampleRecord | None, fail_on: Grade) -> TestCase:
    case = TestCase(_legal(verdict.case), _legal(verdict.gate), round(verdict.seconds, 4))
    values = [("subject", verdict.subject), ("op", verdict.op), ("seed", str(verdict.seed)), ("status", shown(verdict))]
    values += [(item.quantity, sentence(item)) for item in verdict.evidence]
    if counterexample:
        values += [("smallest input", counterexample.file or ""), ("smallest input in words", counterexample.words)]
    properties = Properties()
    for name, value in values:
        properties.append(Property(_legal(name), _legal(value)))
    case.append(properties)
    if verdict.status in FAILURES and verdict.status not in failing(fail_on):
        case.system_out = COMMAND.sub(
            r"\\", _legal(f"{verdict.status}, which does not fail a run with --fail-on {fail_on}: {verdict.reason}")
        )
    elif verdict.status != "correct":
        kind = RESULTS.get(verdict.status, Failure)
        message = f"{verdict.status}: {verdict.reason}" if kind is Skipped else verdict.reason
        result = kind(_legal(message), _legal(verdict.cause))
        result.text = COMMAND.sub(
            r"\\", _legal(f"{message}\n{smallest.sentence(counterexample)}" if counterexample else message)
        )
        case.append(result)
    return case


def _problem(problem: str) -> TestCase:
    case = TestCase(_legal(problem), "gates", 0.0)
    case.append(Error(_legal(problem), "run"))
    return case


def _legal(text: str) -> str:
    """Return the text with control characters escaped and U+FFFD for characters that XML does not allow."""
    return visible(text).translate(NO_CHARACTERS)
