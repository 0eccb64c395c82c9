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
