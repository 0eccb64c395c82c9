"""The pytest plugin: `pytest --gates --gates-subject=numpy` runs one item for each subject, gate and case.

Every pytest of an environment with Gates loads this file, so it imports nothing before `--gates` is given.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options; without `--gates` the others do nothing."""
    group = parser.getgroup("gates", "judging implementations of LLM reinforcement learning (rl-gates)")
    group.addoption(
        "--gates",
        action="store_true",
        help="Judge: an item for each subject, gate and case. Without paths on the command line nothing else is run.",
    )
    group.addoption(
        "--gates-subject",
        action="append",
        default=[],
        metavar="NAME|FILE",
        help="Who is judged; may be repeated. Default: what `gates check` judges.",
    )
    group.addoption(
        "--gates-select",
        action="append",
        default=[],
        metavar="GATES",
        help="Gates: ids, prefixes (kl, loss.gr) or globs (*.matches-definition); may be repeated. Default: all.",
    )
    group.addoption("--gates-quick", action="store_true", help="The quick cases only.")
    group.addoption(
        "--gates-seed",
        metavar="N",
        help="Seed of all cases; random draws one and prints it. Default: that of [tool.gates], else 0.",
    )
    group.addoption(
        "--gates-fail-on",
        choices=("wrong", "differs", "raises", "fragile", "imprecise"),
        help="The mildest grade that fails; a milder one passes with a warning. Default: that of [tool.gates], else raises.",
    )
    group.addoption("--gates-strict", action="store_true", help="The same as --gates-fail-on=imprecise.")
    group.addoption(
        "--gates-time-limit",
        metavar="SECONDS",
        type=float,
        help="Time of each call; the first of an op has five times as much. Default: that of [tool.gates], else of its case.",
    )
    group.addoption("--gates-python", metavar="PATH", help="The interpreter for a subject FILE.")


def pytest_configure(config: pytest.Config) -> None:
    """Load the judge if `--gates` is given."""
    config.addinivalue_line("markers", "gates: an item that `--gates` made of a subject, a gate and a case")
    if config.getoption("--gates"):
        from gates.pytest.items import Judge  # noqa: PLC0415  the judge loads NumPy

        config.pluginmanager.register(Judge(config), "gates-judge")
