"""A recorded run as JUnit XML: a test suite per subject, a test case per gate × case, the evidence as properties.

Written as text, for a tree of a hundred thousand cases takes 2 GB.
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
# what XML 1.0 (§2.2, production Char) cannot hold, beside what `visible` writes out, is U+FFFE and U+FFFF
WRITTEN = re.compile(f"[{''.join(MARKUP)}\ufffe\uffff]|{OBEYED.pattern}")


@dataclass(frozen=True, slots=True)
class Case:
    """One test case: its element, which of the suite's counters it adds to, and what it took in seconds."""

    text: str
    counter: str = ""
    seconds: float = 0.0


def junit_pieces(runs: Iterable[Results]) -> Iterator[str]:
    """Give one document over the runs; an unfinished run, and what fails a run beside its verdicts, are errors in it."""
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
    counts = {kind: str(sum(case.counter == kind for case in cases)) for kind in ("failure", "error", "skipped")}
    told = _attributes(
        name=name,
        tests=str(len(cases)),
        failures=counts["failure"],
        errors=counts["error"],
        skipped=counts["skipped"],
        time=f"{sum(case.seconds for case in cases):.4f}",
        timestamp=run.header.started.partition("+")[0],
    )
    yield f"  <testsuite{told}>\n"
    yield from (case.text for case in cases)
    yield "  </testsuite>\n"


def _case(verdict: VerdictRecord, small: CounterexampleRecord | None) -> Case:
    head = _attributes(classname=verdict.gate, name=verdict.case, time=f"{verdict.seconds:.4f}")
    said = [("subject", verdict.subject), ("seed", str(verdict.seed)), ("status", shown(verdict))]
    said += [(item.quantity, sentence(item)) for item in verdict.evidence]
    if small:
        said += [("smallest input", small.file or ""), ("smallest input in words", small.words)]
    lines = [f"    <testcase{head}>", "      <properties>"]
    lines += [f'        <property name="{_repeated(name)}" value="{_legal(value)}" />' for name, value in said]
    lines.append("      </properties>")
    kind = ELEMENTS.get(verdict.status, "")
    if kind:
        words = f"{verdict.status}: {verdict.reason}" if kind == "skipped" else verdict.reason
        whole = f"{words}\n{smallest.sentence(small)}" if small else words
        lines.append(f"      <{kind}{_attributes(message=words, type=verdict.cause)}>{_legal(whole)}</{kind}>")
    return Case("\n".join([*lines, "    </testcase>\n"]), kind, verdict.seconds)


def _problem(words: str) -> Case:
    head = _attributes(classname="gates", name=words, time="0.0000")
    said = _attributes(message=words, type="run")
    return Case(f"    <testcase{head}>\n      <error{said} />\n    </testcase>\n", "error")


def _attributes(**values: str) -> str:
    return "".join(f' {name}="{_legal(value)}"' for name, value in values.items())


def _legal(text: str) -> str:
    """Return the text as XML holds it: markup escaped, control characters made visible, what is no character U+FFFD."""
    return WRITTEN.sub(_written, text)


_repeated = lru_cache(maxsize=1024)(_legal)  # of what stands in most cases


def _written(found: re.Match[str]) -> str:
    character = found[0]
    shown_as = MARKUP.get(character) or visible(character)
    return "\ufffd" if shown_as == character else shown_as
