"""A recorded run as JUnit XML: a test suite per subject, a test case per gate × case, the evidence as properties."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from xml.etree import ElementTree as ET

from gates.report.jsonl import Results
from gates.report.labels import sentence, shown
from gates.report.records import VerdictRecord

ELEMENTS = {"fail": "failure", "error": "error", "skipped": "skipped", "unsupported": "skipped", "waived": "skipped"}
NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # XML 1.0 §2.2, production Char


def render_junit(runs: Iterable[Results]) -> str:
    """Return one document over the runs; an unfinished run, and what fails a run beside its verdicts, are errors in it."""
    top = ET.Element("testsuites", name="gates")
    for run in runs:
        by_subject: dict[str, list[VerdictRecord]] = defaultdict(list)
        for verdict in run.verdicts:
            by_subject[verdict.subject].append(verdict)
        for subject, verdicts in sorted(by_subject.items()):
            _suite(top, run, subject, [_case(v) for v in sorted(verdicts, key=lambda v: (v.gate, v.case))])
        beside = [*run.summary.problems] if run.summary else [run.state]
        if beside:
            _suite(top, run, "gates", [_problem(words) for words in beside])
    ET.indent(top)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(top, encoding="unicode") + "\n"


def _suite(top: ET.Element, run: Results, name: str, cases: list[ET.Element]) -> None:
    kinds = Counter(child.tag for case in cases for child in case)
    suite = ET.SubElement(
        top,
        "testsuite",
        name=_legal(name),
        tests=str(len(cases)),
        failures=str(kinds["failure"]),
        errors=str(kinds["error"]),
        skipped=str(kinds["skipped"]),
        time=f"{sum(float(case.get('time', 0)) for case in cases):.4f}",
        timestamp=run.header.started.partition("+")[0],
    )
    suite.extend(cases)


def _case(verdict: VerdictRecord) -> ET.Element:
    case = ET.Element(
        "testcase", classname=_legal(verdict.gate), name=_legal(verdict.case), time=f"{verdict.seconds:.4f}"
    )
    properties = ET.SubElement(case, "properties")
    said = [("subject", verdict.subject), ("seed", str(verdict.seed)), ("status", shown(verdict))]
    for name, value in [*said, *((item.quantity, sentence(item)) for item in verdict.evidence)]:
        ET.SubElement(properties, "property", name=_legal(name), value=_legal(value))
    if verdict.status in ELEMENTS:
        kind = ELEMENTS[verdict.status]
        said_of_skips = f"{verdict.status}: " if kind == "skipped" else ""
        words = _legal(f"{said_of_skips}{verdict.reason}")
        ET.SubElement(case, kind, message=words, type=_legal(verdict.cause)).text = words
    return case


def _problem(words: str) -> ET.Element:
    case = ET.Element("testcase", classname="gates", name=_legal(words), time="0.0000")
    ET.SubElement(case, "error", message=_legal(words), type="run")
    return case


def _legal(text: str) -> str:
    """Return the text with what XML cannot hold, such as control characters, as U+FFFD."""
    return NOT_XML.sub("\ufffd", text)
