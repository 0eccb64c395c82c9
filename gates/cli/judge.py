"""`gates judge`: a training step that was written to a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gates.config.format_names import FailOn

EXAMPLES = """Examples:

gates judge step.safetensors · gates judge step.safetensors --json · gates judge step.safetensors --fail-on imprecise
gates judge runs/tiny          every step of a run with `output.trace = true`: the worst verdict on each quantity

docs/recorded-steps.md has the format, and the lines that write it from TRL, verl and plain PyTorch."""


def judge(
    step: Annotated[
        Path,
        typer.Argument(
            metavar="STEP", help="A recorded step, a safetensors file; or a folder of them, a trace of a run."
        ),
    ],
    fail_on: Annotated[
        FailOn,
        typer.Option(
            "--fail-on", help="The mildest grade that fails: wrong, differs, raises (default), fragile or imprecise."
        ),
    ] = "raises",
    strict: Annotated[bool, typer.Option("--strict", help="Every grade but correct fails.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Judge a recorded training step: advantages, loss, gradient, metrics, and the drift of its sampler.

    No code of yours runs. Exit code 0: what could be judged held; 1: a grade fails; 2: the file is unusable; 3: nothing
    could be judged.
    """
    import json
    import time

    from gates.model import STRICT
    from gates.recorded.judge import judged
    from gates.recorded.trace import judged_folder
    from gates.report import recorded
    from gates.report.progress import Elapsed, console
    from gates.report.wrap import columns
    from gates.results.escape import one_line

    start = time.monotonic()
    with Elapsed(console(stderr=True), wanted=not as_json) as elapsed:
        elapsed.start(one_line(step.name))
        if step.is_dir():
            name, findings = step.name, judged_folder(step, lambda what: elapsed.now(one_line(what)))
        else:
            file, findings = judged(step, lambda quantity: elapsed.now(one_line(f"{step.name}: {quantity}")))
            name = file.name
    code = recorded.exit_code(findings, STRICT if strict else fail_on)
    if as_json:
        typer.echo(json.dumps(recorded.record(name, str(step), findings, code), indent=2, ensure_ascii=False))
    else:
        shown = console()
        for line in recorded.lines(name, findings, code, columns(), time.monotonic() - start):
            shown.print(line)
    raise typer.Exit(code)
