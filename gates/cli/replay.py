"""`gates replay`: judge a recorded counterexample again, or turn it into a test."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gates.cli import time_limits

EXAMPLES = """Examples:

gates replay results/runs/check-….counterexamples/loss.grpo.matches-definition-mine.safetensors

gates replay bug.safetensors --subject ./mine.py · gates replay bug.safetensors --emit-test --out tests/test_bug.py"""


def replay(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A counterexample that `gates check` wrote.")],
    subject: Annotated[
        str | None,
        typer.Option("--subject", metavar="NAME|FILE", help="The subject to judge. Default: the one that failed."),
    ] = None,
    python: Annotated[str | None, typer.Option(metavar="PATH", help="The interpreter for a subject FILE.")] = None,
    model: Annotated[
        str | None, typer.Option(metavar="M", help="The model of `gates check --model`, if it had one.")
    ] = None,
    time_limit: Annotated[
        float | None,
        typer.Option(
            callback=time_limits.positive,
            metavar="SECONDS",
            help="Time of each call, as for `gates check`. Default: that of its case, mostly 20.",
        ),
    ] = None,
    emit_test: Annotated[
        bool, typer.Option("--emit-test", help="Write a pytest file that fails while the bug exists.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where the test goes. Default: test_<name>.py here.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Judge a counterexample again: exit code 1 if it fails, 0 if it holds, 3 if the subject lacks the op.

    Without --python a subject file runs in the interpreter named by tool.gates in pyproject.toml, if any; its time_limit holds too.
    """
    import json
    import shlex

    from gates.cli import setup
    from gates.config import settings
    from gates.model import ConfigurationError
    from gates.results.escape import visible
    from gates.shrink import emit_test as emitting
    from gates.shrink import replay as replaying
    from gates.shrink.describe import describe
    from gates.shrink.file import read, summary

    if out is not None and not emit_test:
        raise ConfigurationError("--out names the file that --emit-test writes; give both")
    recorded, registry = read(file), setup.registry()
    project = settings.read(settings.root(Path.cwd()))
    interpreter = setup.interpreter(python or project.python)
    chosen = replaying.subject_of(recorded, registry, subject, interpreter)
    model = setup.model(model)
    seconds = project.time_limit if time_limit is None else time_limit
    outcome = replaying.replay(
        recorded,
        registry,
        chosen,
        model,
        time_limit=seconds,
        time_limit_option="--time-limit",
    )
    if emit_test:
        path = emitting.emit(file, recorded, outcome, chosen, registry, out, model, seconds)
        pytest = f"{shlex.quote(str(chosen.python))} -m pytest" if chosen.python else "pytest"
        typer.echo(f"wrote {path}; run it with: {pytest} {shlex.quote(str(path))}")
        return
    ops = registry.gates[recorded.gate].ops
    description = describe(outcome, ops, recorded.inputs, recorded.cut) if outcome.state == "fails" else outcome.reason
    calls = [words for call in outcome.calls if outcome.state == "fails" and (words := emitting.as_call(call))]
    if as_json:
        known = {**summary(recorded), "now": outcome.state, "now_words": description, "calls": calls}
        text = json.dumps(known, indent=2, ensure_ascii=False)
    else:
        text = f"{outcome.state}: {chosen.name} · {recorded.gate} · {recorded.case}{f': {description}' if description else ''}"
        text += "".join(f"\ncalled: {words}" for words in calls)
    typer.echo(visible(text))
    raise typer.Exit({"holds": 0, "fails": 1, "unclear": 1, "unsupported": 3}[outcome.state])
