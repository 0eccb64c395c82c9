"""Judge one peer in its own environment, reproduce its findings, and compare its declaration with the package."""

from __future__ import annotations

import platform
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from gates.cli import setup
from gates.cli.diagnoses import WrongOps
from gates.cli.published import published
from gates.model import DEFAULT, DEFINITIONS, Verdict
from gates.report import diagnosis
from gates.report.grades import Grades, OpGrade
from gates.report.progress import Bar, console
from gates.results import machine
from gates.results.conformance_records import (
    BlankRecord,
    ConformanceHeader,
    ConformanceResults,
    CoverageRecord,
    FindingRecord,
    GradeRecord,
)
from gates.results.records import Machine
from gates.run import session
from gates.run.plan import Options, plan
from gates.run.session import CheckRequest, RunInfo
from gates.subjects import catalogue
from gates.subjects.peers import coverage, declared, environments, reproduce
from gates.subjects.peers.declared import Conformance, Finding, named
from gates.subjects.peers.discovery import Peer
from gates.subjects.peers.reproduce import Reproduced

GOOD = ("correct", "waived")
MINOR = {"imprecise", "hardening"}
UNEXPLAINED = (*GOOD, *MINOR)  # need no finding: only our own kernels are asked for these
FOLDER = Path("results", "conformance")


@dataclass(slots=True)
class Judged:
    """The result of judging one peer."""

    results: ConformanceResults
    problems: list[str] = field(default_factory=list)  # grades without a finding, and findings that do not hold
    run: Path | None = None  # the file of verdicts


def judge(peer: Peer, *, quick: bool, jobs: int, seed: int = 0) -> Judged:
    """Judge a peer whose environment is ready; every verdict goes to results/runs.

    With `quick` only the quick cases of the library as it is are judged, without its documented parameter sets; one finding
    in four is reproduced, and nothing is said of what fragile ops compute.
    """
    start, started = time.monotonic(), datetime.now(UTC).isoformat(timespec="seconds")
    known = declared.conformance(peer)
    chosen = known.finding[:: 4 if quick else 1]
    with ThreadPoolExecutor(1) as beside:  # a worker and the programs each import the library, for up to twenty seconds
        running = beside.submit(reproduce.run_all, peer.name, chosen, setup.jobs(jobs))
        grades, computes, tally, path = _grades(peer, quick=quick, jobs=jobs, seed=seed)
        ran = running.result()
    covered = coverage.covered(peer, environments.environment(peer.name))
    versions = next((dict(hello.versions) for hello in tally.hellos.values() if hello.versions), {})
    commit, dirty = machine.commit()
    cpu, features = machine.cpu()
    header = ConformanceHeader(
        peer=peer.name,
        version=environments.pinned(peer),
        versions=versions,
        started=started,
        commit=commit,
        dirty=dirty,
        definitions=DEFINITIONS,
        machine=Machine(system=platform.platform(), cpu=cpu, cores=machine.cores(), features=features),
        quick=quick,
        seconds=round(time.monotonic() - start, 1),
    )
    results = ConformanceResults(
        header,
        [_grade(grade, computes, known) for grade in grades],
        [CoverageRecord(source=r.source, name=r.name, status=r.status, reason=r.reason) for r in covered.rows],
        list(_findings(known.finding, ran)),
        [BlankRecord(op=op, kind=blank.kind, why=blank.why) for blank in known.blank for op in blank.ops],
    )
    problems = [*_unexplained(results), *_misgraded(results), *_contradicted(results, quick=quick), *covered.problems]
    return Judged(results, problems, path)


def _grades(
    peer: Peer, *, quick: bool, jobs: int, seed: int
) -> tuple[list[OpGrade], dict[tuple[str, str], str], session.Tally, Path]:
    """Return the grades of a peer and its variants, what the wrong ops compute, the count, and the file of verdicts."""
    registry = setup.registry()
    subjects = setup.watched(catalogue.choose(registry, (peer.name,), None), "local")
    gates = list(registry.gates.values())
    if quick:  # each parameter set needs a process that imports the library
        subjects = [subject for subject in subjects if not subject.is_variant]
    cases = plan(gates, subjects, quick=quick, model=None)
    workers = setup.jobs(jobs)
    options = Options(seed=seed, jobs=workers, threads=setup.threads(workers), quick=quick)
    setup.batch_scheduling()
    writer = setup.writer("check", None, record=False)
    mutants = registry.mutants.values()
    info = RunInfo("check", sys.argv[1:], gates, subjects, options, len(cases), fail_on=DEFAULT, mutants=mutants)
    writer.write(session.header(info))
    collected, wrong_ops = Grades(), WrongOps(cases, options, writer, silent=True, rare=not quick)
    try:
        with Bar(peer.name, len(cases), shown_on=console(stderr=True)) as bar:

            def note(verdict: Verdict) -> None:
                collected.add(published(verdict))
                bar.advance(f"{verdict.gate} · {verdict.case}")

            request = CheckRequest(
                cases,
                options,
                writer=writer,
                on_verdict=wrong_ops.watching(note),
                before_summary=lambda: wrong_ops.record(lambda: None),
            )
            tally = session.check(request)
            collected.differing = tally.differing
    finally:
        writer.close()
    computes = {(record.subject, record.op): diagnosis.words(record) for record in wrong_ops.records}
    return collected.grades(), computes, tally, writer.path


def _grade(grade: OpGrade, computes: dict[tuple[str, str], str], known: Conformance) -> GradeRecord:
    return GradeRecord(
        subject=grade.subject,
        op=grade.op,
        grade=grade.status,
        cases=grade.cases,
        of_this_grade=grade.like,
        not_judged=grade.left,
        hardening=grade.hardening[1] - grade.hardening[0],
        gate=grade.verdict.gate,
        case=grade.verdict.case,
        reason="" if grade.status == "correct" else grade.verdict.reason,
        computes=computes.get((grade.subject, grade.op), ""),
        findings=_explaining(grade, known.finding),
        settings=[setting.chosen for setting in known.setting if named(grade.subject, grade.op, setting.ops)],
    )


def _explaining(grade: OpGrade, findings: Sequence[Finding]) -> list[str]:
    """Return the ids of the findings about an op.

    One that is only imprecise or a matter of hardening is explained by findings of that grade, which explain nothing else.
    """
    about = [] if grade.status in GOOD else [f for f in findings if named(grade.subject, grade.op, f.ops)]
    return [
        finding.id for finding in about if (finding.grade == grade.status) or not {finding.grade, grade.status} & MINOR
    ]


def _findings(findings: Sequence[Finding], ran: Sequence[Reproduced]) -> Iterator[FindingRecord]:
    outcomes = {outcome.finding.id: outcome for outcome in ran}
    for finding in findings:
        outcome = outcomes.get(finding.id)
        yield FindingRecord(
            **finding.model_dump(exclude={"ops", "quote", "departures", "rows"}),
            ops=list(finding.ops),
            rows=list(finding.rows),
            departures=list(finding.departures),
            reproduced=outcome.holds if outcome else None,
            output=outcome.output if outcome else "",
        )


def _unexplained(results: ConformanceResults) -> Iterator[str]:
    for grade in results.grades:
        if grade.grade not in UNEXPLAINED and not grade.findings:
            yield f"no finding says why {grade.op} of {grade.subject} is graded {grade.grade}"


def _misgraded(results: ConformanceResults) -> Iterator[str]:
    """Yield a sentence for each wrong op that only numeric findings explain, and for each blank that has a grade."""
    numeric = {finding.id for finding in results.findings if finding.kind == "numeric"}
    for grade in results.grades:
        if grade.grade == "wrong" and grade.findings and numeric.issuperset(grade.findings):
            yield f"{grade.op} of {grade.subject} is graded wrong, and only numeric findings say why"
    graded = {grade.op for grade in results.grades}
    yield from (
        f"{blank.op} is declared {blank.kind}, and has a grade" for blank in results.blanks if blank.op in graded
    )


def _contradicted(results: ConformanceResults, *, quick: bool) -> Iterator[str]:
    """Yield a sentence for each finding that its program or the check contradicts."""
    seen = {
        (name, shown)
        for grade in results.grades
        for name in (grade.op, f"{grade.subject}: {grade.op}")
        for shown in (grade.grade, *(("hardening",) if grade.hardening else ()))
    }
    for finding in results.findings:
        if finding.reproduced is False:
            yield f"{finding.id}: its program does not show it: {finding.output}"
        missing = [op for op in finding.ops if (op, finding.grade) not in seen]
        if missing and not quick and finding.grade != "correct":
            yield f"{finding.id}: the check does not grade {', '.join(missing)} {finding.grade}"
