"""Render recorded runs as JUnit XML: a suite per subject, a test case per gate × case, the evidence as properties.

The XML is written as text: a tree of 100,000 cases takes 2 GB, and junitparser 11 s instead of 4 s.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from gates.report import smallest
from gates.report.labels import sentence, shown
from gates.results.escape import OBEYED, visible
from gates.results.jsonl import Results
from gates.results.records import CounterexampleRecord, VerdictRecord

ELEMENTS = {"fail": "failure", "error": "error", "skipped": "skipped", "unsupported": "skipped", "waived": "skipped"}
MARKUP = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "\t": "&#9;", "\n": "&#10;"}
# beside what `visible` escapes, XML 1.0 (§2.2, Char) excludes U+FFFE and U+FFFF
WRITTEN = re.compile(f"[{''.join(MARKUP)}\ufffe\uffff]|{OBEYED.pattern}")


@dataclass(frozen=True, slots=True)
class Case:
    """One test case: its XML, the counter of its suite that it adds to, and its time in seconds."""

    text: str
    counter: str = ""
    seconds: float = 0.0


def junit_pieces(runs: Iterable[Results]) -> Iterator[str]:
    """Yield one document; an unfinished run, and each problem of a run beside its verdicts, is an error in it."""
    yield '<?xml version="1.0" encoding="UTF-8"?>\n<testsuites name="gates">\n'
    for run in runs:
        by_subject: dict[str, list[VerdictRecord]] = defaultdict(list)
        for verdict in run.verdicts:
            by_subject[verdict.subject].append(verdict)
        small = {smallest.verdict_key(item): item for item in run.counterexamples if item.file}
        for subject, verdicts in sorted(by_subject.items()):
            ordered = sorted(verdicts, key=lambda v: (v.gate, v.case))
            yield from _suite(run, subject, [_case(v, small.get(smallest.verdict_key(v))) for v in ordered])
        beside = [*run.summary.problems] if run.summary else [run.state]
        if beside:
            yield from _suite(run, "gates", [_problem(words) for words in beside])
    yield "</testsuites>\n"


def _suite(run: Results, name: str, cases: Sequence[Case]) -> Iterator[str]:
    counts = {name: str(sum(case.counter == name for case in cases)) for name in ("failure", "error", "skipped")}
    attributes = _attributes(
        name=name,
        tests=str(len(cases)),
        failures=counts["failure"],
        errors=counts["error"],
        skipped=counts["skipped"],
        time=f"{sum(case.seconds for case in cases):.4f}",
        timestamp=run.header.started.partition("+")[0],
    )
    yield f"  <testsuite{attributes}>\n"
    yield from (case.text for case in cases)
    yield "  </testsuite>\n"


def _case(verdict: VerdictRecord, small: CounterexampleRecord | None) -> Case:
    head = _attributes(classname=verdict.gate, name=verdict.case, time=f"{verdict.seconds:.4f}")
    properties = [("subject", verdict.subject), ("seed", str(verdict.seed)), ("status", shown(verdict))]
    properties += [(item.quantity, sentence(item)) for item in verdict.evidence]
    if small:
        properties += [("smallest input", small.file or ""), ("smallest input in words", small.words)]
    lines = [f"    <testcase{head}>", "      <properties>"]
    lines += [f'        <property name="{_repeated(name)}" value="{_legal(value)}" />' for name, value in properties]
    lines.append("      </properties>")
    result = ELEMENTS.get(verdict.status, "")
    if result:
        words = f"{verdict.status}: {verdict.reason}" if result == "skipped" else verdict.reason
        whole = f"{words}\n{smallest.sentence(small)}" if small else words
        lines.append(f"      <{result}{_attributes(message=words, type=verdict.cause)}>{_legal(whole)}</{result}>")
    return Case("\n".join([*lines, "    </testcase>\n"]), result, verdict.seconds)


def _problem(words: str) -> Case:
    head = _attributes(classname="gates", name=words, time="0.0000")
    error = _attributes(message=words, type="run")
    return Case(f"    <testcase{head}>\n      <error{error} />\n    </testcase>\n", "error")


def _attributes(**values: str) -> str:
    return "".join(f' {name}="{_legal(value)}"' for name, value in values.items())


def _legal(text: str) -> str:
    """Return the text with markup and control characters escaped, and U+FFFD for what is no character."""
    return WRITTEN.sub(_written, text)


_repeated = lru_cache(maxsize=1024)(_legal)  # names that most cases repeat


def _written(found: re.Match[str]) -> str:
    character = found[0]
    shown_as = MARKUP.get(character) or visible(character)
    return "\ufffd" if shown_as == character else shown_as
