"""Which library computes what a reader means by GRPO: one row for each, axis by axis."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from gates.report.conformance.cells import Cell
from gates.report.conformance.composition import axes_of, in_columns
from gates.report.conformance.words import BY, rule, table_row
from gates.results.conformance_records import ConformanceResults
from gates.results.library_facts import Facts
from gates_reference.algorithms import ALGORITHMS

COLUMNS = ("ratio", "bound", "aggregation", "KL", "advantages")
GIVEN, FOUND = "given by the caller", "see findings"
PAPER = {  # DeepSeekMath, arXiv 2402.03300, section 4.2 and equation 3
    "algorithm": "grpo",
    "epsilon_low": 0.2,
    "epsilon_high": 0.2,
    "beta": 0.04,
    "kl_estimator": "k3",
    "kl_ratio": "none",
    "baseline": "mean",
    "scale": "group",
}


def table(
    libraries: Sequence[ConformanceResults], cells: Mapping[tuple[str, str], Cell], facts: Facts
) -> Iterator[str]:
    """Yield the section."""
    yield "## Which library computes what you mean by GRPO"
    yield ""
    yield (
        "With the library's defaults. *Read from*: the settings in force, which two updates of its own trainer were compared with "
        "(updates), calls of its loss (calls), or programs of findings (programs). Libraries without GRPO have no row."
    )
    yield ""
    yield table_row(["", *COLUMNS, "read from"])
    yield rule(len(COLUMNS) + 2)
    paper = {**in_columns(PAPER), "advantages": "less the group's mean, over the group's deviation"}
    yield table_row([f"*paper* ({ALGORITHMS['grpo'].paper})", *(paper[name] for name in COLUMNS), ""])
    for library in libraries:
        cell = cells["GRPO", library.header.peer]
        if cell.kind == "judged" and cell.default is not None:
            yield _row(cell, facts)
    yield ""


def _row(cell: Cell, facts: Facts) -> str:
    assert cell.default is not None
    known = facts.get(cell.peer)
    agrees = cell.default.by == "update" and cell.default.grade == "correct"
    settings = known.trainers.get("grpo", {}) if known and agrees else {}
    found = in_columns(settings) if settings else axes_of("grpo", cell.default.choices)
    links = " ".join(
        f"[{number}](conformance/{cell.peer}.md#{finding.id})" for number, finding in enumerate(cell.findings, 1)
    )
    rest = GIVEN if cell.default.by == "function" else FOUND
    return table_row(
        [
            f"[{cell.peer}](conformance/{cell.peer}.md)",
            *(found.get(name, rest) for name in COLUMNS),
            " ".join(part for part in (BY[cell.default.by], links) if part),
        ]
    )
