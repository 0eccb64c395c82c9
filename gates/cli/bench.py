"""`gates bench`: measure speed against the peers' own code with benches/, which only a checkout has."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Annotated

import typer

from gates.cli.verb import Verb

EXAMPLES = """Examples:

gates bench kernels --targets rlox,trl --quick · gates bench kernels --op token_kl --record ·
gates bench trainers --targets reference,mlxrl --workload geometric · gates bench compare main HEAD"""

app = typer.Typer(help="Measure speed: kernels, whole trainers, two revisions.", no_args_is_help=True)

Targets = Annotated[
    str,
    typer.Option(metavar="NAME[,NAME]...", help="What to time, separated by commas. Default: all that are installed."),
]
Quick = Annotated[bool, typer.Option("--quick", help="A smoke test: few samples of the smallest workloads.")]
Record = Annotated[bool, typer.Option("--record", help="Write to results/bench, on purpose, instead of results/runs.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the records as JSON lines instead of text.")]
Require = Annotated[
    list[str] | None, typer.Option(metavar="NAME|all", help="Fail if this target cannot be timed here.")
]


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


KERNEL_EXAMPLES = """Examples:

gates bench kernels --targets rlox,trl --quick · gates bench kernels --op token_kl --shape 32x2048 ·
gates bench kernels --threads 1 --isa avx2 · gates bench kernels --record --require all · gates bench kernels --list"""


@app.command("kernels", cls=Verb, epilog=KERNEL_EXAMPLES)
def kernels(
    targets: Targets = "",
    op: Annotated[list[str] | None, typer.Option(metavar="NAME", help="An op; may be repeated.")] = None,
    shape: Annotated[list[str] | None, typer.Option(metavar="NAME", help="A workload; may be repeated.")] = None,
    threads: Annotated[int, typer.Option(min=1, max=1024, help="Of rlkernels and of every library.")] = 2,
    processes: Annotated[
        int | None,
        typer.Option(min=1, max=20, help="Of each peer, whose samples are put together. Default: 1, recorded 3."),
    ] = None,
    isa: Annotated[str, typer.Option(metavar="scalar|avx2|avx512|neon", help="Instruction set of rlkernels.")] = "",
    full: Annotated[bool, typer.Option("--full", help="Also the sizes that take minutes.")] = False,
    quick: Quick = False,
    record: Record = False,
    as_json: AsJson = False,
    require: Require = None,
    only_list: Annotated[bool, typer.Option("--list", help="Print the rows and measure nothing.")] = False,
) -> None:
    """Time rlkernels against its peers, each in the peer's own environment, both sides in turns on the same data.

    Both results are compared with the oracle first. What is wrong has no time: `peer wrong`. The ratio is the peer's time
    over ours.

    Exit code: 0 · 1 one of ours is wrong or a required target is not timed · 2 usage · 3 nothing was measured.
    """
    status = measurements("ratios_run").run(
        targets=[name.strip() for name in targets.split(",") if name.strip()],
        ops=op or (),
        shapes=shape or (),
        quick=quick,
        full=full,
        threads=threads,
        processes=processes,
        isa=isa,
        record=record,
        as_json=as_json,
        require=require or (),
        only_list=only_list,
        echo=typer.echo,
    )
    raise typer.Exit(status)


@app.command("compare", cls=Verb, epilog=EXAMPLES)
def compare(
    left: Annotated[
        str, typer.Argument(metavar="REV_A", help="A revision that git knows, or . for the build in .venv.")
    ],
    right: Annotated[str, typer.Argument(metavar="REV_B", help="The revision that must not be slower.")],
    only: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="A benchmark of benches/calls.py. Default: seven of them.")
    ] = None,
    usual: Annotated[bool, typer.Option("--usual", help="The default benchmarks beside those of --only.")] = False,
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
            names=(*(errors.DEFAULT if usual else ()), *(only or ())),
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


TRAINER_EXAMPLES = """Examples:

gates bench trainers --quick · gates bench trainers --targets mlxrl,trl --workload geometric --passes 6 ·
gates bench trainers --shape ten --threads 1 --record · gates bench trainers --require all --json"""


@app.command("trainers", cls=Verb, epilog=TRAINER_EXAMPLES)
def trainers(
    targets: Targets = "",
    workload: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[,NAME]...",
            help="no-early-end, geometric, ragged, long-prompt, 4-bit, or all; may be repeated. Default: the first two.",
        ),
    ] = None,
    shape: Annotated[str, typer.Option(metavar="tiny|ten|qwen3-0.6b", help="Size of the model.")] = "tiny",
    passes: Annotated[
        int | None, typer.Option(min=1, max=100, help="Processes of each target, in turns with the others. Default: 4.")
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option(min=1, max=1000, help="Timed steps of a process; thrice as many for geometric. Default: 6."),
    ] = None,
    threads: Annotated[int, typer.Option(min=1, max=1024, help="Of every library.")] = 2,
    quick: Quick = False,
    record: Record = False,
    as_json: AsJson = False,
    require: Require = None,
) -> None:
    """Time whole trainers: the reference and the peers' own, each by its public entry point in its own environment.

    Each process trains the same random model with GRPO and warms up first. The last column is the time of a step for each
    completion token over the reference's, which runs twice a round: its time over itself is the control. `peak GB` is by the framework (torch counts none on a CPU), `RSS GB` by the system.
    """
    status = measurements("trainers.run").run(
        targets=targets,
        workloads=workload or (),
        shape=shape,
        passes=passes,
        steps=steps,
        threads=threads,
        quick=quick,
        record=record,
        as_json=as_json,
        require=require or (),
        echo=typer.echo,
    )
    raise typer.Exit(status)
