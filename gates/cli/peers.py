"""`gates peers`: other libraries, each judged in an environment of its own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gates.cli.verb import Verb
from gates.errors import ExitCode

if TYPE_CHECKING:
    from gates.cli.peer_check import Judged
    from gates.subjects.peers.reproduce import Reproduced

EXAMPLES = """Examples:

gates peers list · gates peers sync trl verl · gates peers check trl · gates peers check --quick --require trl ·
gates peers check --record · gates peers repro rlox-k3-inverted · gates peers coverage trl · gates peers diff old/trl.jsonl"""

Names = Annotated[
    list[str] | None, typer.Argument(metavar="[NAME]...", help="Peers, as `gates peers list` shows them. Default: all.")
]
Jobs = Annotated[int, typer.Option(min=0, max=64, metavar="N", help="Workers side by side. Default: 0, one per core.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Require = Annotated[
    list[str] | None, typer.Option(metavar="NAME|all", help="Fail if the environment of this peer cannot be had.")
]

app = typer.Typer(help="Install other libraries apart, judge them, and reproduce what was found.", no_args_is_help=True)


@app.command("sync", cls=Verb, epilog=EXAMPLES)
def sync(names: Names = None, require: Require = None) -> None:
    """Make the environments of peers from their pinned requirements. One that is whole is kept, a broken one is made anew.

    A peer that cannot be installed is reported; with --require, or named, it fails the run.
    """
    from gates.model import ConfigurationError
    from gates.subjects.peers import environments

    failed: dict[str, str] = {}
    for name in _chosen(names):
        try:
            environment = environments.sync(name, on_line=lambda line: typer.echo(f"  {line}"))
        except environments.PeerError as error:
            failed[name] = str(error)
            typer.echo(f"{name}: not installed: {error}", err=True)
            continue
        typer.echo(f"{name}: ready at {environment.path}")
    needed = [name for name in failed if name in _required(require) or (names and name in names)]
    if needed:
        raise ConfigurationError(failed[needed[0]])


@app.command("list", cls=Verb, epilog=EXAMPLES)
def list_(as_json: AsJson = False) -> None:
    """List peers, their pinned versions, whether their environments exist, and what each peer is for."""
    import dataclasses
    import json

    from gates.model import ConfigurationError
    from gates.subjects.peers import environments

    try:
        rows = environments.listing()
    except environments.PeerError as error:
        raise ConfigurationError(str(error)) from None
    if as_json:
        typer.echo(json.dumps([dataclasses.asdict(row) for row in rows], indent=2, default=str))
        return
    for row in rows:
        state = "ready" if row.ready else "not made; `gates peers sync` makes it"
        typer.echo(f"{row.name:12} {row.distribution} {row.version:10} {state:40} {row.path}\n{'':12} {row.purpose}")


@app.command("check", cls=Verb, epilog=EXAMPLES)
def check(
    names: Names = None,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick", help="The quick cases without documented parameter sets, and a sample of the findings."
        ),
    ] = False,
    record: Annotated[bool, typer.Option("--record", help="Keep the result under results/conformance.")] = False,
    require: Require = None,
    jobs: Jobs = 0,
    as_json: AsJson = False,
) -> None:
    """Judge peers op by op; reproduce what was found in each; compare its public names with those that are covered.

    A peer that is not perfect does not fail this run. It fails where the records are wrong about a peer: an op that is wrong, differs, raises, is fragile or departs and no finding says why, a finding that its program does not show, a public name without a row.

    Exit code: 0 the records hold · 1 they do not, or a required peer is absent · 3 no peer could be judged.
    """
    from gates.cli import peer_check
    from gates.model import ConfigurationError
    from gates.subjects.peers import environments

    if record and quick:
        raise ConfigurationError("--record is given with --quick, must be given with all cases")
    required, judged, absent = _required(require), list[peer_check.Judged](), list[str]()
    for name in _chosen(names):
        peer, environment = environments.peers()[name], environments.environment(name)
        if peer.subject is None:
            continue
        if not environment.ready:
            absent.append(name)
            typer.echo(f"{name}: not judged: no environment yet; `gates peers sync {name}` makes it", err=True)
            continue
        try:
            judged.append(peer_check.judge(peer, quick=quick, jobs=jobs))
        except environments.PeerError as error:
            raise ConfigurationError(str(error)) from None
        if record:
            judged[-1].results.write(peer_check.FOLDER / f"{name}.jsonl")
        if not as_json:
            _show(judged[-1])
    _end(judged, [name for name in absent if name in required or (names and name in names)], as_json=as_json)


@app.command("repro", cls=Verb, epilog=EXAMPLES)
def repro(
    ids: Annotated[
        list[str] | None, typer.Argument(metavar="[ID]...", help="Findings. Default: all of installed peers.")
    ] = None,
    show: Annotated[bool, typer.Option("--show", help="Print the programs; run nothing.")] = False,
    jobs: Jobs = 0,
    as_json: AsJson = False,
) -> None:
    """Run the programs that reproduce findings, each in its peer's own environment, without Gates.

    Exit code: 0 all findings hold · 1 one does not · 3 none could be run.
    """
    import json

    from gates.cli import setup
    from gates.model import ConfigurationError
    from gates.nearest import hint
    from gates.subjects.peers import environments, reproduce

    try:
        known = reproduce.known()
    except environments.PeerError as error:
        raise ConfigurationError(str(error)) from None
    for id_ in ids or ():
        if id_ not in known:
            raise ConfigurationError(f"{id_!r} is no finding{hint(id_, known)}; there are {', '.join(known)}")
    if show:
        for id_ in ids or known:
            typer.echo(f"# {id_}: {known[id_][1].says}\n{known[id_][1].repro}")
        return
    ran: list[reproduce.Reproduced] = []
    for name in environments.peers():
        chosen = tuple(finding for peer, finding in known.values() if peer == name and (not ids or finding.id in ids))
        if chosen and (ids or environments.environment(name).ready):
            try:
                ran += reproduce.run_all(name, chosen, setup.jobs(jobs))
            except environments.PeerError as error:
                raise ConfigurationError(str(error)) from None
    if as_json:
        typer.echo(json.dumps([{"id": o.finding.id, "holds": o.holds, "output": o.output} for o in ran], indent=2))
    else:
        _show_reproduced(ran)
    raise typer.Exit(
        ExitCode.NOTHING if not ran else ExitCode.HELD if all(outcome.holds for outcome in ran) else ExitCode.FAILED
    )


@app.command("coverage", cls=Verb, epilog=EXAMPLES)
def coverage(
    names: Names = None,
    record: Annotated[
        bool, typer.Option("--record", help="Renew the public names in the files under results/conformance.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List the public names of installed peers, each with its status and the reason, and count what is judged of those in scope.

    Exit code: 0 every name has a row · 1 one has none, or a row has no name any more.
    """
    import dataclasses
    import json

    from gates.cli import peer_check, peer_coverage
    from gates.model import ConfigurationError
    from gates.subjects.peers import coverage as rows
    from gates.subjects.peers import environments
    from gates.subjects.peers.scope import scope

    problems: list[str] = []
    coverages = {}
    for name in _chosen(names):
        environment = environments.environment(name)
        if not environment.ready:
            typer.echo(f"{name}: no environment yet; `gates peers sync {name}` makes it", err=True)
            continue
        try:
            coverages[name] = rows.covered(environments.peers()[name], environment)
        except environments.PeerError as error:
            raise ConfigurationError(str(error)) from None
        problems += [f"{name}: {problem}" for problem in coverages[name].problems]
        if record and not coverages[name].problems:
            peer_coverage.record(environments.peers()[name], coverages[name], peer_check.FOLDER)
    if as_json:
        typer.echo(
            json.dumps(
                {name: [dataclasses.asdict(r) for r in covered.rows] for name, covered in coverages.items()}, indent=2
            )
        )
    else:
        for name, covered in coverages.items():
            for row in covered.rows:
                typer.echo(
                    f"{name}  {row.status or 'NO ROW':21}  {row.source.partition(' ')[2]}.{row.name}  {row.reason}"
                )
            typer.echo(f"{name}: {len(covered.rows)} names, {scope(covered.rows)}")
    for problem in problems:
        typer.echo(problem, err=True)
    raise typer.Exit(ExitCode.FAILED if problems else ExitCode.HELD)


@app.command("diff", cls=Verb, epilog=EXAMPLES)
def diff(
    old: Annotated[Path, typer.Argument(metavar="OLD.jsonl", help="A record that `gates peers check --record` wrote.")],
    new: Annotated[
        Path | None, typer.Argument(metavar="[NEW.jsonl]", help="Default: results/conformance/NAME.jsonl.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compare two records of a library: grades that changed, findings that no longer reproduce, public names added and removed.

    Judge the new release first (`gates peers check NAME --record`), with a copy of the old record at hand: `git show HEAD:results/conformance/trl.jsonl > /tmp/trl.jsonl; gates peers diff /tmp/trl.jsonl`.

    Exit code: 0 nothing changed but versions and dates · 1 something did · 2 a file is no record, or they are of two libraries.
    """
    import json

    from gates.cli import peer_check
    from gates.model import ConfigurationError
    from gates.report import library_changes
    from gates.results.conformance_records import read_conformance

    for file in (old, new):
        if file is not None and not file.is_file():
            raise ConfigurationError(f"no file {file}; `gates peers check NAME --record` writes a record")
    before = read_conformance(old)
    file = new or peer_check.FOLDER / f"{before.header.peer}.jsonl"
    if not file.is_file():
        raise ConfigurationError(f"no file {file}; `gates peers check {before.header.peer} --record` writes it")
    after = read_conformance(file)
    if before.header.peer != after.header.peer:
        raise ConfigurationError(
            f"{old} is of {before.header.peer}, {file} of {after.header.peer}; give two records of one library"
        )
    changes = library_changes.compared(before, after)
    if as_json:
        typer.echo(json.dumps(library_changes.document(changes), indent=2, ensure_ascii=False))
    else:
        for line in library_changes.screen(changes):
            typer.echo(line)
    raise typer.Exit(ExitCode.FAILED if changes else ExitCode.HELD)


def _chosen(names: list[str] | None) -> list[str]:
    """Return the named peers, or all; an unknown name is refused with the nearest one."""
    from gates.model import ConfigurationError
    from gates.nearest import hint
    from gates.subjects.peers import environments

    try:
        known = environments.peers()
    except environments.PeerError as error:
        raise ConfigurationError(str(error)) from None
    for name in names or ():
        if name not in known:
            raise ConfigurationError(f"{name!r} is no peer{hint(name, known)}; must be one of {', '.join(known)}")
    return names or list(known)


def _required(require: list[str] | None) -> list[str]:
    return _chosen(None) if require and "all" in require else _chosen(require) if require else []


def _show(judged: Judged) -> None:
    """Print one peer: its counts in a line, what is not correct, and what the records do not explain."""
    from gates.report.conformance.screen import screen

    for line in screen(judged.results, judged.problems):
        typer.echo(line)


def _show_reproduced(ran: list[Reproduced]) -> None:
    from gates.report.wrap import wrapped

    for reproduced in ran:
        typer.echo(f"{'holds' if reproduced.holds else 'DOES NOT HOLD':13}  {reproduced.finding.id}")
        for line in wrapped([reproduced.output.replace("\n", " · ")], 110, " "):
            typer.echo(f"{'':15}{line}")
    typer.echo(f"{sum(reproduced.holds for reproduced in ran)} of {len(ran)} findings hold")


def _end(judged: list[Judged], missing: list[str], *, as_json: bool) -> None:
    """Print the sum, and end with the exit code."""
    import json

    problems = [problem for peer in judged for problem in peer.problems]
    problems += [f"required, but not installed: {name}" for name in missing]
    if as_json:
        documents = [
            {
                **peer.results.header.model_dump(),
                "grades": [grade.model_dump() for grade in peer.results.grades],
                "findings": [finding.model_dump() for finding in peer.results.findings],
                "problems": peer.problems,
                "run": str(peer.run),
            }
            for peer in judged
        ]
        typer.echo(json.dumps(documents, indent=2))
    else:
        for name in missing:
            typer.echo(f"required, but not installed: {name}")
        typer.echo(f"{len(judged)} peers judged, {len(problems)} problems with the records")
    if problems:
        raise typer.Exit(ExitCode.FAILED)
    raise typer.Exit(ExitCode.HELD if judged else ExitCode.NOTHING)
