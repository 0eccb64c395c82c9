"""Render the head of a run in markdown: its outcome in one sentence, then command, versions and machine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from gates.report import outcome
from gates.report.subjects import versions
from gates.results.escape import code, in_table, one_line
from gates.results.jsonl import Results


def overview(runs: Sequence[Results]) -> list[str]:
    """Return a table of the runs with links to their files, for a document above the folder of the results."""
    rows = [f"| {_link(run.path)} | {in_table(', '.join(run.header.subjects))} | {sentence(run)} |" for run in runs]
    return ["| run | subjects | outcome |", "|---|---|---|", *rows, ""]


def _link(path: Path) -> str:
    return f"[{code(path.name, cell=True)}]({quote(f'{path.absolute().parent.name}/{path.name}')})"


def sentence(run: Results) -> str:
    """Return the outcome of a run, in bold if it is not good."""
    found = outcome.of(run)
    return f"{found.meaning if found.good else f'**{found.meaning}**'}: {found.words}"


def title(run: Results) -> list[str]:
    """Return the heading and the outcome."""
    return [f"## {run.header.verb} {one_line(run.path.stem)}", "", f"{sentence(run)}.", ""]


def table(run: Results) -> list[str]:
    """Return command, judge, subjects and machine."""
    h = run.header
    commit = f"{h.commit[:12]}{' (dirty)' if h.dirty else ''}" if h.commit else "no checkout"
    rows = [
        ("state", in_table(run.state)),
        ("command", code(f"gates {' '.join(h.command)}", cell=True)),
        ("started", in_table(h.started)),
        ("judge", in_table(f"{h.tool}, commit {commit}, Python {h.python}, NumPy {h.numpy} ({h.blas})")),
        ("machine", in_table(f"{h.machine.cpu}, {h.machine.cores} cores, {h.machine.system}")),
        ("features", in_table(" ".join(h.machine.features) or "not reported")),
        ("run", f"seed {h.seed}, {h.jobs} workers × {h.threads} threads{', quick' * h.quick}{', all draws' * h.full}"),
        *((f"subject {in_table(names)}", in_table(reported)) for names, reported in versions(run.subjects)),
    ]
    if run.models:
        models = (f"{m.hash[:12]} ({_named(m.spec)})" for m in run.models)
        rows.append(("models", in_table("; ".join(models))))
    return ["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows), ""]


def _named(values: dict[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in sorted(values.items()))
