"""The command line. Verbs print and decide nothing; only typer is imported here, so that `gates --help` is quick."""

from __future__ import annotations

import io
import signal
import sys
from typing import Annotated

import typer

from gates.cli import (
    calibrate,
    check,
    explain,
    init,
    listing,
    merge,
    mutants,
    ops,
    peers,
    prove,
    replay,
    report,
    trainer,
)

EPILOG = "Exit codes: 0 held · 1 a subject failed, a requirement is unmet or a waiver is stale · 2 usage · 3 nothing measured · 4 our own fault · 130 interrupted."

app = typer.Typer(
    name="gates",
    epilog=EPILOG,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("check", epilog=check.EXAMPLES)(check.check)
app.command("list", epilog=listing.EXAMPLES)(listing.list_)
app.command("explain", epilog=explain.EXAMPLES)(explain.explain)
app.command("mutants", epilog=mutants.EXAMPLES)(mutants.mutants)
app.command("ops", epilog=ops.EXAMPLES)(ops.ops)
app.command("init", epilog=init.EXAMPLES)(init.init)
app.command("prove", epilog=prove.EXAMPLES)(prove.prove)
app.command("calibrate", epilog=calibrate.EXAMPLES)(calibrate.calibrate)
app.command("report", epilog=report.EXAMPLES)(report.report)
app.command("replay", epilog=replay.EXAMPLES)(replay.replay)
app.command("merge", epilog=merge.EXAMPLES)(merge.merge)
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


def main() -> None:
    """Run a command; what the user got wrong is one sentence and exit code 2, never a traceback.

    SIGTERM, which CI sends, ends a command as Ctrl-C does: in order, with all that was judged kept. SIGINT is set too, for
    the background job of a script is started with it ignored. What the terminal's encoding does not have is written as an
    escape: a run must not end at a minus sign.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    for name in (signal.SIGINT, signal.SIGTERM):
        signal.signal(name, signal.default_int_handler)
    try:
        app()
    except KeyboardInterrupt:  # while the commands were built; from then on typer catches it
        typer.echo("gates: interrupted", err=True)
        sys.exit(128 + signal.SIGINT)
    except Exception as error:
        from gates.model import ConfigurationError
        from gates.results.escape import visible

        if not isinstance(error, ConfigurationError):
            raise
        typer.echo(visible(f"gates: {error}"), err=True)
        sys.exit(2)
