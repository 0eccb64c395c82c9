"""The verbs of the command line; only typer is imported here, so that `gates --help` is quick."""

from __future__ import annotations

from typing import Annotated

import typer

from gates.cli import (
    bench,
    calibrate,
    check,
    doctor,
    explain,
    identify,
    init,
    judge,
    listing,
    merge,
    mutants,
    ops,
    peers,
    prove,
    replay,
    report,
    trainer,
    xray,
)
from gates.cli.verb import Verb
from gates.errors import EXIT_CODES

app = typer.Typer(
    name="gates",
    epilog=EXIT_CODES,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("check", cls=Verb, epilog=check.EXAMPLES)(check.check)
app.command("identify", cls=Verb, epilog=identify.EXAMPLES)(identify.identify)
app.command("judge", cls=Verb, epilog=judge.EXAMPLES)(judge.judge)
app.command("xray", cls=Verb, epilog=xray.EXAMPLES)(xray.xray)
app.command("list", cls=Verb, epilog=listing.EXAMPLES)(listing.list_)
app.command("explain", cls=Verb, epilog=explain.EXAMPLES)(explain.explain)
app.command("mutants", cls=Verb, epilog=mutants.EXAMPLES)(mutants.mutants)
app.command("ops", cls=Verb, epilog=ops.EXAMPLES)(ops.ops)
app.command("init", cls=Verb, epilog=init.EXAMPLES)(init.init)
app.command("prove", cls=Verb, epilog=prove.EXAMPLES)(prove.prove)
app.command("calibrate", cls=Verb, epilog=calibrate.EXAMPLES)(calibrate.calibrate)
app.command("report", cls=Verb, epilog=report.EXAMPLES)(report.report)
app.command("replay", cls=Verb, epilog=replay.EXAMPLES)(replay.replay)
app.command("doctor", cls=Verb, epilog=doctor.EXAMPLES)(doctor.doctor)
app.command("merge", cls=Verb, epilog=merge.EXAMPLES)(merge.merge)
app.add_typer(bench.app, name="bench")
app.add_typer(peers.app, name="peers")
app.add_typer(trainer.app, name="trainer")
for _verb in trainer.VERBS:
    app.command(_verb, hidden=True, add_help_option=False, context_settings=trainer.ANY_ARGUMENTS)(trainer.moved)


def _version(value: bool) -> None:
    if value:
        from gates.run.session import tool_version

        typer.echo(tool_version())
        raise typer.Exit


@app.callback()
def gates(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    """Judge implementations of LLM reinforcement-learning post-training: verdicts with evidence."""
