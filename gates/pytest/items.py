"""The items of `pytest --gates`: each judges one case with workers of this process."""

from __future__ import annotations

import warnings
from collections.abc import Generator, Iterator
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
import typer

from gates.cli import project, seeds, setup, time_limits
from gates.errors import FaultError
from gates.model import DEFAULT, FAILURES, NOT_JUDGED, STRICT, ConfigurationError, Grade, Verdict, failing
from gates.pytest.choices import Choices
from gates.registry import load
from gates.report.labels import shown
from gates.results.escape import one_line
from gates.run.engines.subject_workers import SubjectWorkers
from gates.run.plan import Options, PlannedCase, plan
from gates.run.time_limits import TIMEOUTS

NAME = "gates"  # the first part of every item's id: gates::numpy::kl.k3.matches-definition[small]


class GradeWarning(pytest.PytestWarning):
    """An item passed with a grade that is not `correct` but milder than `fail_on`."""


class NotHeldError(Exception):
    """The verdict is not a pass, or something required was not judged."""


def message(verdict: Verdict) -> str:
    """Return a verdict's sentence, and below it the evidence, first what does not hold."""
    lines = [one_line(f"{shown(verdict).upper()} {verdict.where}: {verdict.reason} (seed {verdict.seed})")]
    for item in sorted(verdict.evidence, key=lambda item: item.holds):
        lines.append(one_line(f"  {item.role}: {item.sentence()}"))
        if item.because != item.role:  # the reason of a precondition may just be its role
            lines.append(one_line(f"    because {item.because}"))
    return "\n".join(lines)


def properties(verdict: Verdict) -> list[tuple[str, object]]:
    """Return the JUnit properties of a verdict: status, op, cause, seed, and each number with its limit."""
    pairs: list[tuple[str, object]] = [(name, getattr(verdict, name)) for name in ("status", "op", "cause", "seed")]
    for item in verdict.evidence:
        where = f" ({item.where})" if item.where else ""
        value = f"{item.observed!r} {item.relation} {item.limit!r} {'holds' if item.holds else 'does not hold'}{where}"
        pairs.append((one_line(f"{item.role}: {item.quantity}"), one_line(value)))
    return pairs


class Judge:
    """The plan of a session and the workers of this process; with xdist every process has its own."""

    def __init__(self, config: pytest.Config) -> None:
        option = config.getoption
        if items := [name for name in config.args if name.startswith(f"{NAME}::")]:
            *_, subject, case = items[0].split("::")
            raise pytest.UsageError(f"--gates: {items[0]} is no path; choose it by -k '{subject} and {case}'")
        quick = bool(option("--gates-quick"))
        if (strict := bool(option("--gates-strict"))) and option("--gates-fail-on"):
            raise pytest.UsageError("--gates-strict means --gates-fail-on=imprecise; leave out one of the two")
        try:
            line = project.CommandLine(
                option("--gates-select"), option("--gates-subject"), python=option("--gates-python"), quick=quick
            )
            request = project.request(load(), line)
            model = setup.model(request.settings.model, "[tool.gates] model")
            text = option("--gates-seed")
            limit = time_limits.positive(option("--gates-time-limit"))
            seed = seeds.chosen(None if text is None else seeds.parse(text), request.settings.seed)
        except (ConfigurationError, typer.BadParameter) as error:
            raise pytest.UsageError(f"--gates: {error}") from None
        memory = setup.memory(None)  # as in `gates check`, so that a runaway subject does not take the whole machine
        subjects = [replace(subject, memory_limit=memory) for subject in request.subjects]
        order = {subject.name: position for position, subject in enumerate(subjects)}
        self.waivers = request.waivers
        self.requirements = request.requirements
        self.fail_on: Grade = STRICT if strict else option("--gates-fail-on") or request.settings.fail_on or DEFAULT
        self.cases = sorted(plan(request.gates, subjects, quick=quick), key=lambda planned: order[planned.subject.name])
        options = Options(
            seed=seed,
            quick=quick,
            model=model,
            time_limit=request.settings.time_limit if limit is None else limit,
            time_limit_option="--gates-time-limit",
            most_timeouts=TIMEOUTS,
        )
        self.workers = SubjectWorkers(options)
        self.choices = Choices(options)
        self.drawn = seed if isinstance(seed, seeds.Drawn) else None
        config.option.gates_seed = str(int(seed))  # one for all processes of xdist
        if config.args_source is not pytest.Config.ArgsSource.ARGS:
            config.args = []  # without a path pytest would collect testpaths or the working directory too

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(
        self, collector: pytest.Collector
    ) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        """Add the plan to what the session collects."""
        report = yield
        if isinstance(collector, pytest.Session):
            report.result.append(PlanNode.from_parent(collector, name=NAME, nodeid=NAME, judge=self))
        return report

    def pytest_report_header(self) -> str | None:
        """Report a drawn seed and the option that repeats it."""
        return (
            None
            if self.drawn is None
            else f"gates: seed {self.drawn} was drawn; the same again: --gates-seed {self.drawn}"
        )

    def pytest_unconfigure(self) -> None:
        """End the workers, whatever happened."""
        self.workers.close()


class PlanNode(pytest.Collector):
    """The plan: a collector for each subject."""

    def __init__(self, *, judge: Judge, **rest: Any) -> None:
        super().__init__(**rest)
        self._judge = judge

    def collect(self) -> Iterator[pytest.Collector]:
        """Yield the subjects."""
        for subject, cases in groupby(self._judge.cases, key=lambda planned: planned.subject.name):
            yield SubjectNode.from_parent(self, name=subject, cases=list(cases), judge=self._judge)


class SubjectNode(pytest.Collector):
    """A subject: an item for each gate and case."""

    def __init__(self, *, cases: list[PlannedCase], judge: Judge, **rest: Any) -> None:
        super().__init__(**rest)
        self._cases = cases
        self._judge = judge

    def collect(self) -> Iterator[pytest.Item]:
        """Yield an item for each gate and case."""
        for planned in self._cases:
            name = f"{planned.gate.id}[{planned.case.name}]"
            whole = f"{self.nodeid}::{name}"  # the whole id, since `--lf` compares it with its cache
            yield GateItem.from_parent(self, name=name, nodeid=whole, planned=planned, judge=self._judge)


class GateItem(pytest.Item):
    """One gate, subject and case."""

    def __init__(self, *, planned: PlannedCase, judge: Judge, **rest: Any) -> None:
        super().__init__(**rest)
        self._planned = planned
        self._judge = judge
        self.add_marker("gates")

    def runtest(self) -> None:
        """Judge the case; a waived failure is an expected failure, and a case that was not judged is skipped.

        A case whose definition does not hold is diagnosed: another choice is `differs`, and named.
        A failure milder than `fail_on` passes with a warning. A case that `[tool.gates] require` names fails if it was not
        judged.
        """
        try:
            judged = self._judge.workers.judge(self._planned).verdict
            judged = self._judge.choices.settled(self._planned, judged)
        except ConfigurationError as error:
            pytest.exit(f"--gates: {error}", pytest.ExitCode.USAGE_ERROR)
        except FaultError as error:
            pytest.exit(f"--gates: {error}", pytest.ExitCode.INTERNAL_ERROR)
        verdict = self._judge.waivers.apply(judged)
        self.user_properties += properties(verdict)
        if any(requirement.unmet_by(verdict) for requirement in self._judge.requirements):
            raise NotHeldError(one_line(f"required, but {verdict.status}: {verdict.where}: {verdict.reason}"))
        if verdict.status in NOT_JUDGED:
            pytest.skip(one_line(f"{verdict.status}: {verdict.reason}"))
        if verdict.waived:
            waiver = f"waived until {verdict.waived.expires} by {verdict.waived.owner}: {verdict.waived.reason}"
            pytest.xfail(one_line(f"{waiver}; {verdict.reason}"))
        if verdict.status in failing(self._judge.fail_on) or verdict.status == "error":
            raise NotHeldError(message(verdict))
        if verdict.status in FAILURES:
            warning = one_line(f"{verdict.status}: {verdict.where}: {verdict.reason}")
            warnings.warn(GradeWarning(warning), stacklevel=1)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Show a verdict as its message, and any other exception as pytest does."""
        if isinstance(excinfo.value, NotHeldError):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, None, str]:
        """Return the location and the name that pytest reports."""
        planned = self._planned
        where = f"{planned.subject.name} · {planned.gate.id} · {planned.case.name}"
        return self.config.rootpath / NAME, None, where
