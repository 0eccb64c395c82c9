"""The items of `pytest --gates`: each judges one cell by this process's own workers, and says what was measured."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from gates.cli import setup
from gates.cli.project import asked
from gates.model import ConfigurationError, Verdict
from gates.registry import load
from gates.report.labels import shown
from gates.results.escape import one_line
from gates.run.engines.workers import Bench
from gates.run.runner import Options, PlannedCase, plan

NAME = "gates"  # the first part of every item's id: gates::numpy::kl.k3.matches-definition[small]
NOT_JUDGED = frozenset(("skipped", "unsupported"))


class NotHeldError(Exception):
    """A verdict that is no pass: the subject's failure, the judge's own error, or a hole in what is required."""


def message(verdict: Verdict) -> str:
    """Return a verdict's sentence, and under it everything that was measured, what does not hold first."""
    lines = [one_line(f"{shown(verdict).upper()} {verdict.where}: {verdict.reason} (seed {verdict.seed})")]
    for item in sorted(verdict.evidence, key=lambda item: item.holds):
        lines.append(one_line(f"  {item.role}: {item.sentence()}"))
        if item.because != item.role:  # a signal without an argument of its own says no more than that it is one
            lines.append(one_line(f"    because {item.because}"))
    return "\n".join(lines)


def properties(verdict: Verdict) -> list[tuple[str, object]]:
    """Return what JUnit files keep of a verdict: status, cause, seed, and each number beside its limit."""
    found: list[tuple[str, object]] = [(name, getattr(verdict, name)) for name in ("status", "cause", "seed")]
    for item in verdict.evidence:
        place = f" ({item.where})" if item.where else ""
        words = f"{item.observed!r} {item.relation} {item.limit!r} {'holds' if item.holds else 'does not hold'}{place}"
        found.append((one_line(f"{item.role}: {item.quantity}"), one_line(words)))
    return found


class Judge:
    """One session's plan and its workers; with xdist every process has its own, and shares nothing."""

    def __init__(self, config: pytest.Config) -> None:
        option = config.getoption
        if items := [name for name in config.args if name.startswith(f"{NAME}::")]:
            *_, subject, cell = items[0].split("::")
            raise pytest.UsageError(f"--gates: {items[0]} is no path; choose it by -k '{subject} and {cell}'")
        quick, seed = bool(option("--gates-quick")), option("--gates-seed")
        try:
            found = asked(
                load(),
                option("--gates-select"),
                option("--gates-subject"),
                None,
                option("--gates-python"),
                None,
                quick=quick,
            )
            model = setup.model(found.told.model, "[tool.gates] model")
        except ConfigurationError as error:
            raise pytest.UsageError(f"--gates: {error}") from None
        memory = setup.memory(None)  # as in `gates check`: what runs away ends alone, and not the machine
        subjects = [replace(subject, memory_limit=memory) for subject in found.subjects]
        order = {subject.name: place for place, subject in enumerate(subjects)}
        self.waivers = found.waivers
        self.requirements = found.requirements
        self.jobs = sorted(plan(found.gates, subjects, quick=quick), key=lambda job: order[job.subject.name])
        self.bench = Bench(Options(seed=found.told.seed if seed is None else seed, quick=quick, model=model))
        if config.args_source is not pytest.Config.ArgsSource.ARGS:
            config.args = []  # no path was named: testpaths and the working directory are not what is asked for

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(
        self, collector: pytest.Collector
    ) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        """Put the plan beside whatever else the session collects."""
        report = yield
        if isinstance(collector, pytest.Session):
            report.result.append(PlanNode.from_parent(collector, name=NAME, nodeid=NAME, judge=self))
        return report

    def pytest_unconfigure(self) -> None:
        """End the workers, whatever happened."""
        self.bench.close()


class PlanNode(pytest.Collector):
    """All that is judged."""

    def __init__(self, *, judge: Judge, **rest: Any) -> None:
        super().__init__(**rest)
        self._judge = judge

    def collect(self) -> Iterator[pytest.Collector]:
        """Yield the subjects."""
        for subject, jobs in groupby(self._judge.jobs, key=lambda job: job.subject.name):
            yield SubjectNode.from_parent(self, name=subject, jobs=list(jobs), judge=self._judge)


class SubjectNode(pytest.Collector):
    """One subject."""

    def __init__(self, *, jobs: list[PlannedCase], judge: Judge, **rest: Any) -> None:
        super().__init__(**rest)
        self._jobs = jobs
        self._judge = judge

    def collect(self) -> Iterator[pytest.Item]:
        """Yield an item for each gate and case."""
        for job in self._jobs:
            name = f"{job.gate.id}[{job.case.name}]"
            whole = f"{self.nodeid}::{name}"  # said in full: `--lf` compares it with what it parses from its cache
            yield GateItem.from_parent(self, name=name, nodeid=whole, job=job, judge=self._judge)


class GateItem(pytest.Item):
    """One gate, subject and case."""

    def __init__(self, *, job: PlannedCase, judge: Judge, **rest: Any) -> None:
        super().__init__(**rest)
        self._job = job
        self._judge = judge
        self.add_marker("gates")

    def runtest(self) -> None:
        """Judge; what is no pass is a failure, a waived one an expected failure, and what was not judged is skipped.

        What `[tool.gates] require` names fails where it was not judged.
        """
        verdict = self._judge.waivers.apply(self._judge.bench.judge(self._job).verdict)
        self.user_properties += properties(verdict)
        if any(requirement.unmet_by(verdict) for requirement in self._judge.requirements):
            raise NotHeldError(one_line(f"required, but {verdict.status}: {verdict.where}: {verdict.reason}"))
        if verdict.status in NOT_JUDGED:
            pytest.skip(one_line(f"{verdict.status}: {verdict.reason}"))
        if verdict.waived:
            who = f"waived until {verdict.waived.expires} by {verdict.waived.owner}: {verdict.waived.reason}"
            pytest.xfail(one_line(f"{who}; {verdict.reason}"))
        if verdict.status != "pass":
            raise NotHeldError(message(verdict))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Show a verdict as its words, and anything else as pytest does."""
        if isinstance(excinfo.value, NotHeldError):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, None, str]:
        """Return where the item is said to come from, and its name."""
        job = self._job
        return self.config.rootpath / NAME, None, f"{job.subject.name} · {job.gate.id} · {job.case.name}"
