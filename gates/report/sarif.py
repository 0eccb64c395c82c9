"""Render recorded runs as SARIF 2.1.0, which code scanning reads: a result for each op that is not correct."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import PurePath
from typing import Any, Literal
from urllib.parse import quote

from gates import registry
from gates.model import FAILURES, Grade, failing
from gates.report import smallest
from gates.report.diagnosis import named, words
from gates.report.grades import EVERY, Grades, OpGrade
from gates.report.screen import by_op
from gates.report.sources import source
from gates.results.jsonl import Results
from gates.results.records import CounterexampleRecord, Location

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
Level = Literal["error", "warning", "note"]


def sarif(runs: Iterable[Results]) -> str:
    """Return one document with a run for each recorded run."""
    document = {"$schema": SCHEMA, "version": "2.1.0", "runs": [_run(run) for run in map(named, runs)]}
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _run(run: Results) -> dict[str, Any]:
    grades = [grade for grade in Grades.of_runs([run]).grades() if grade.status != "correct"]
    rules = sorted({grade.verdict.gate for grade in grades})
    inputs = by_op(run.counterexamples, {(v.gate, v.subject, v.case): v.op for v in run.judged})
    diagnoses = {(record.subject, record.op): words(record) for record in run.diagnoses if record.computes}
    return {
        "tool": {
            "driver": {
                "name": "Gates",
                "version": run.header.tool.removeprefix("rl-gates "),
                "rules": [_rule(gate) for gate in rules],
            }
        },
        "invocations": [_invocation(run)],
        "results": [
            {
                "ruleId": grade.verdict.gate,
                "ruleIndex": rules.index(grade.verdict.gate),
                "level": level(grade, run.header.fail_on),
                "message": {
                    "text": _message(
                        grade, diagnoses.get((grade.subject, grade.op), ""), inputs.get((grade.subject, grade.op))
                    )
                },
                "locations": list(_locations(grade, source(run, grade.subject, grade.op))),
                "partialFingerprints": {"subjectAndOp/v1": f"{grade.subject}/{grade.op}"},
            }
            for grade in grades
        ],
    }


def level(grade: OpGrade, fail_on: Grade) -> Level:
    """Return `error` where the run fails, `warning` for a milder failure, `note` for what is waived or costs no grade."""
    if grade.verdict.status in {*failing(fail_on), "error"}:
        return "error"
    return "warning" if grade.verdict.status in FAILURES - {"hardening"} else "note"


def _rule(name: str) -> dict[str, Any]:
    gate = registry.load().gates.get(name)
    question = gate.question if gate else name  # a gate of another version
    return {
        "id": name,
        "shortDescription": {"text": question},
        "help": {"text": f"gates explain {name} says what is asked, and where its limits come from."},
    }


def _invocation(run: Results) -> dict[str, Any]:
    """Return the outcome of the run: problems other than verdicts are notifications."""
    problems = run.summary.problems if run.summary else [run.state]
    invocation: dict[str, Any] = {
        "executionSuccessful": run.summary is not None and run.summary.exit_code in {0, 1},
        "toolExecutionNotifications": [{"level": "error", "message": {"text": problem}} for problem in problems],
    }
    return invocation | ({"exitCode": run.summary.exit_code} if run.summary else {})


def _message(grade: OpGrade, computes: str, small: CounterexampleRecord | None) -> str:
    """Return grade, what the op computes instead, the verdict that counts, and an input on which it fails."""
    verdict = grade.verdict
    if grade.op == EVERY:
        return f"{grade.subject}: {verdict.reason} ({grade.cases} cases)"
    known = f" {computes}." if computes and computes not in verdict.reason else ""
    text = f"{grade.op} of {grade.subject} is {grade.status} in {grade.count}.{known} {verdict.case}: {verdict.reason}"
    return f"{text}\n{smallest.sentence(small)}" if small and smallest.shrunk(small) else text


def _locations(grade: OpGrade, where: Location | None) -> Iterator[dict[str, Any]]:
    location: dict[str, Any] = {"logicalLocations": [{"name": grade.op, "fullyQualifiedName": grade.subject}]}
    if where:
        path = PurePath(where.file)
        uri = path.as_uri() if path.is_absolute() else quote(path.as_posix())
        region = {"startLine": where.line}
        location["physicalLocation"] = {"artifactLocation": {"uri": uri}, "region": region}
    yield location
