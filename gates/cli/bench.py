"""`gates bench`: measure speed against the peers' own code. The measurements are in benches/, which only a checkout has."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Annotated

import typer

from gates.cli.verb import Verb

EXAMPLES = """Examples:

gates bench kernels --targets rlox trl --quick · gates bench kernels --op token_kl --record ·
gates bench trainers --targets reference,mlxrl --workload geometric · gates bench compare main HEAD"""

app = typer.Typer(help="Measure speed: kernels, whole trainers, two revisions.", no_args_is_help=True)

Targets = Annotated[
    str, typer.Option(metavar="NAME[,NAME]...", help="What to time, separated by commas. Default: all that are installed.")
]
Quick = Annotated[bool, typer.Option("--quick", help="A smoke test: few samples of the smallest workloads.")]
Record = Annotated[bool, typer.Option("--record", help="Write to results/bench, on purpose, instead of results/runs.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the records as JSON lines instead of text.")]
Require = Annotated[list[str] | None, typer.Option(metavar="NAME|all", help="Fail if this target cannot be timed here.")]


def measurements(name: str) -> ModuleType:
    """Import a module of benches/ from the checkout that this `gates` belongs to.

    Raises:
        ConfigurationError: this is an installed wheel, which has no benches/.
    """
    from gates.model import ConfigurationError

    root = Path(__file__).resolve().parents[2]
    if not (root / "benches" / "timing.py").is_file():
        raise ConfigurationError(
            "`gates bench` needs a checkout of Gates (benches/ is not in the wheel): clone the repository, run "
            "`make setup` and use .venv/bin/gates there"
        )
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    return importlib.import_module(f"benches.{name}")


@app.command("compare", cls=Verb, epilog=EXAMPLES)
def compare(
    left: Annotated[str, typer.Argument(metavar="REV_A", help="A revision that git knows, or . for the build in .venv.")],
    right: Annotated[str, typer.Argument(metavar="REV_B", help="The revision that must not be slower.")],
    only: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="A benchmark of benches/calls.py. Default: seven of them.")
    ] = None,
    pairs: Annotated[int, typer.Option(min=4, max=400, help="Pairs of processes; an odd number is rounded up.")] = 20,
    seconds: Annotated[float, typer.Option(min=0.02, max=10, help="Of sampling, in each process.")] = 0.12,
    floor: Annotated[float, typer.Option(min=0, max=1, help="Effects below it count as none.")] = 0.02,
    instructions: Annotated[bool, typer.Option(help="Also count the instructions of a call with valgrind.")] = False,
    record: Record = False,
    as_json: AsJson = False,
) -> None:
    """Time two revisions of rlkernels by interleaved pairs of processes. Exit 1 if one benchmark is slower in REV_B.

    Slower means: the 95% interval of the ratio excludes 1, and the effect exceeds the floor. A control, one build over
    itself in the same pairs, shows the noise.
    """
    from gates.model import ConfigurationError

    errors = measurements("compare")
    try:
        status = measurements("comparison").run(
            left,
            right,
            names=only or (),
            pairs=pairs + pairs % 2,
            seconds=seconds,
            floor=floor,
            count=instructions,
            record=record,
            as_json=as_json,
            echo=typer.echo,
        )
    except errors.CompareError as error:
        raise ConfigurationError(str(error)) from None
    raise typer.Exit(status)
