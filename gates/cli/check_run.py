"""Conduct one run of `gates check`, from its arguments to its exit code."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import typer

from gates.cli import engines, expression, output, project, seeds, setup, watching
from gates.cli.counterexamples import Failures
from gates.cli.diagnoses import WrongOps
from gates.config.format_names import CheckFormat
from gates.config.settings import Settings
from gates.errors import FaultError
from gates.model import DEFAULT, STRICT, ConfigurationError, Grade
from gates.registry import Registry
from gates.report.text import Screen
from gates.results.escape import one_line
from gates.results.jsonl import Results, Writer
from gates.results.records import HeaderRecord
from gates.run import resume as resuming
from gates.run import session
from gates.run.plan import Options, PlannedCase, plan
from gates.run.resume import Resumed
from gates.run.session import CheckRequest, RunInfo
from gates.run.shards import Shard
from gates.run.time_limits import TIMEOUTS


@dataclass(frozen=True, slots=True)
class Arguments:
    """The options of the command line; None, an empty list or False leaves a choice to the project or the default."""

    select: list[str]
    subject: list[str]
    model: str | None
    quick: bool
    full: bool
    jobs: int | None
    seed: int | None
    shard: str | None
    resume: Path | None
    engine: Literal["local", "ray"]
    out: Path | None
    record: bool
    require: list[str]
    python: str | None
    waivers: Path | None
    baseline: Path | None
    form: CheckFormat | None
    as_json: bool
    memory_limit: float | None
    time_limit: float | None  # seconds of each call
    shrink_seconds: float  # for each failure; 0: failures are not shrunk
    fail_on: Grade | None = None
    strict: bool = False
    verbose: bool = False  # a line for each verdict
    keyword: str | None = None  # an expression over the names of cases
    watch: bool = False  # judge again when a file of a subject's folder changes

    def __post_init__(self) -> None:
        """Refuse options that exclude each other."""
        if self.strict and self.fail_on:
            raise ConfigurationError("--strict and --fail-on exclude each other")
        if self.quick and self.full:
            raise ConfigurationError("--quick and --full exclude each other")
        if self.resume and (self.out or self.record):
            raise ConfigurationError("--resume continues its own file; leave out --out and --record")
        if self.watch and (self.resume or self.record or self.shard):
            raise ConfigurationError("--watch judges again and again; leave out --resume, --record and --shard")


@dataclass(frozen=True, slots=True)
class Run:
    """A run that is about to begin: everything is resolved and the results file is open."""

    arguments: Arguments
    registry: Registry
    request: project.Request
    form: CheckFormat
    before: Results | None  # the baseline that the end is compared with
    options: Options
    cases: list[PlannedCase]
    header: HeaderRecord
    writer: Writer
    resumed: Resumed | None

    @property
    def folders(self) -> list[Path]:
        """The folders of the subjects, without those inside another one."""
        folders = {subject.entry.parent for subject in self.request.subjects}
        return sorted(folder for folder in folders if not folders & set(folder.parents))

    @property
    def results(self) -> Path:
        """The results file."""
        return self.writer.path


def conduct(arguments: Arguments) -> int:
    """Judge the chosen gates and subjects, print the results, and return the exit code."""
    return watching.rounds(lambda: _prepare(arguments), _conduct) if arguments.watch else _conduct(_prepare(arguments))


def _conduct(run: Run) -> int:
    arguments = run.arguments
    if isinstance(run.options.seed, seeds.Drawn):
        repeat = shlex.join(["gates", *run.header.command])
        typer.echo(f"seed {run.options.seed} was drawn; the same again: {repeat}", err=True)
    mutants = (run.resumed.earlier.header if run.resumed else run.header).mutants
    _say_who(run)
    screen = Screen(
        len(run.cases),
        run.form,
        verbose=arguments.verbose,
        fail_on=run.header.fail_on,
        mutants=mutants,
        waivers=run.request.waivers,
    )
    if run.resumed:
        screen.verdicts.extend(run.resumed.verdicts)
    else:
        run.writer.write(run.header)
    failures, wrong_ops = _failures(run), _wrong_ops(run)
    try:
        tally = _judge(run, screen, failures, wrong_ops)
    except KeyboardInterrupt:
        screen.interrupted(run.writer.path)
        typer.echo(f"go on with: {resuming.command(run.header.command, run.writer.path)}", err=True)
        return session.INTERRUPTED
    except ConfigurationError:  # of a subject, which only its worker can find
        if not screen.verdicts:
            run.writer.path.unlink(missing_ok=True)
        raise
    except (FaultError, OSError) as error:
        again = partial(resuming.command, run.header.command)
        raise output.ended_early(error, run.writer.path, again) from None
    finally:
        run.writer.close()
    if screen.verbose:
        failures.show()
    output.notes(tally, run.registry)
    output.end(screen, run.writer.path, tally, run.before, failures, wrong_ops)
    if arguments.record:
        setup.recorded(run.writer.path)
    return tally.exit_code()


def _say_who(run: Run) -> None:
    """Say who is judged where nobody on the command line named them."""
    if run.request.where:
        names = ", ".join(subject.name for subject in run.request.subjects)
        typer.echo(one_line(f"judging {names} ({run.request.where})"), err=True)


def _prepare(arguments: Arguments) -> Run:
    """Resolve subjects, gates and options, and open the results file; every mistake of the user is reported here."""
    registry = setup.registry()
    request = project.request(
        registry,
        project.CommandLine(
            arguments.select,
            arguments.subject,
            arguments.require,
            arguments.python,
            arguments.waivers,
            quick=arguments.quick,
            full=arguments.full,
        ),
    )
    settings = request.settings
    subjects = setup.watched(request.subjects, arguments.engine, arguments.memory_limit)
    form = output.chosen(arguments.form or (None if arguments.as_json else settings.format), as_json=arguments.as_json)
    before = output.since(arguments.baseline, form)
    setup.batch_scheduling()
    options = _options(arguments, settings)
    planned = _selected(plan(request.gates, subjects, quick=arguments.quick, model=options.model), arguments.keyword)
    if arguments.quick and not any(case.quick for gate in request.gates for case in gate.cases):
        raise ConfigurationError(
            "--quick: none of the chosen gates has a quick case; leave out --quick or choose others"
        )
    shard = Shard.parse(arguments.shard)
    request.waivers.partial = shard.count > 1 or arguments.keyword is not None
    cases = shard.take(planned)
    header = session.header(
        RunInfo(
            "check",
            seeds.command(sys.argv[1:], options.seed),
            request.gates,
            subjects,
            options,
            len(cases),
            plan=shard.record(planned),
            waivers=request.waivers.entries,
            engine=arguments.engine,
            subject_files=session.file_digests(subjects, registry.subjects),
            fail_on=STRICT if arguments.strict else arguments.fail_on or settings.fail_on or DEFAULT,
            mutants=registry.mutants.values(),
        )
    )
    resumed = resuming.resume(arguments.resume, header, cases) if arguments.resume else None
    writer = resumed.writer if resumed else _new_file(arguments, settings)
    return Run(arguments, registry, request, form, before, options, cases, header, writer, resumed)


def _selected(cases: list[PlannedCase], keyword: str | None) -> list[PlannedCase]:
    """Return the cases that `-k` selects by gate, subject, case and ops."""
    if keyword is None:
        return cases
    matches = expression.parse(keyword)
    selected = [case for case in cases if matches(" ".join((*case.names, *(op.name for op in case.gate.ops))))]
    if not selected:
        raise ConfigurationError(f"-k {keyword!r}: matches none of {len(cases):,} cases; `-v` prints their names")
    return selected


def _options(arguments: Arguments, settings: Settings) -> Options:
    """Return the options of the run: the command line's, else the project's."""
    jobs = setup.jobs(settings.jobs if arguments.jobs is None else arguments.jobs)
    return Options(
        seed=seeds.chosen(arguments.seed, settings.seed, resume=arguments.resume, shard=arguments.shard),
        jobs=jobs,
        threads=setup.threads(jobs),
        quick=arguments.quick,
        full=arguments.full,
        model=setup.model(arguments.model or settings.model),
        time_limit=settings.time_limit if arguments.time_limit is None else arguments.time_limit,
        time_limit_option="--time-limit",
        most_timeouts=TIMEOUTS,
    )


def _new_file(arguments: Arguments, settings: Settings) -> Writer:
    folder = arguments.out or (Path(settings.out) if settings.out and not arguments.record else None)
    return setup.writer("check", folder, record=arguments.record)


def _failures(run: Run) -> Failures:
    """Return the collector that shrinks the failures at the end of the run."""
    return Failures(
        run.cases,
        run.options,
        run.registry.subjects,
        run.writer,
        silent=run.form not in {"text", "github"},
        budget_s=run.arguments.shrink_seconds,
        fail_on=run.header.fail_on,
        verdicts=run.resumed.still_large if run.resumed else [],
    )


def _wrong_ops(run: Run) -> WrongOps:
    """Return the collector that diagnoses the wrong ops at the end of the run."""
    earlier = run.resumed.earlier.diagnoses if run.resumed else []
    silent = run.form not in {"text", "github"}
    wrong_ops = WrongOps(run.cases, run.options, run.writer, silent, records=list(earlier))
    wrong_ops.note(run.resumed.verdicts if run.resumed and not run.resumed.complete else ())
    return wrong_ops


def _judge(run: Run, screen: Screen, failures: Failures, wrong_ops: WrongOps) -> session.Tally:
    """Judge the remaining cases; diagnose wrong ops and shrink failures before the summary is written."""

    def before_summary() -> frozenset[tuple[str, str]]:
        differing = wrong_ops.record(screen.all_judged)
        failures.record(screen.all_judged)
        return differing

    complete = run.resumed is not None and run.resumed.complete
    with engines.opened(run.arguments.engine, run.registry) as engine, screen:
        return session.check(
            CheckRequest(
                run.resumed.left if run.resumed else run.cases,
                run.options,
                writer=None if complete else run.writer,
                requirements=run.request.requirements,
                on_verdict=wrong_ops.watching(failures.watching(screen.verdict)),
                on_hello=partial(output.refuse_misspelt, run.registry),
                engine=engine,
                resumed=run.resumed,
                waivers=run.request.waivers,
                fail_on=run.header.fail_on,
                before_summary=before_summary,
            )
        )
