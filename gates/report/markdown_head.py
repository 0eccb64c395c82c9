"""The head of a run in markdown: what came out of it in one sentence, and what was asked of which judge, where."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from gates.report.calibration import flaky
from gates.report.jsonl import Results
from gates.report.labels import DEPARTS, meaning, shown
from gates.report.subjects import versions
from gates.report.visible import code, in_table, one_line

FAILED = 1
DOCUMENTED = "departs as documented"
STATUSES = ("fail", "error", DEPARTS, "waived", "pass", "skipped", "unsupported")


def overview(runs: Sequence[Results]) -> list[str]:
    """Return a line for each of several runs."""
    if len(runs) < 2:
        return []
    rows = [
        f"| {code(run.path.name, cell=True)} | {in_table(', '.join(run.header.subjects))} | {outcome(run)} |"
        for run in runs
    ]
    return ["| run | subjects | what came out |", "|---|---|---|", *rows, ""]


def outcome(run: Results) -> str:
    """Return what came out of a run, in one sentence."""
    words = counts(run)
    if run.header.verb == "prove":
        caught = sum(mutant.state == "caught" for mutant in run.mutants)
        words = f"{caught} of {len(run.mutants)} mutants caught; without them {words}"
    if run.header.verb == "calibrate":
        alarms = {alarm.seed for _, alarm in flaky(run.blocks)}
        words = f"{len(alarms)} of {run.header.seeds or 0} seeds with a false alarm; {words}"
        if run.summary and run.summary.exit_code == FAILED and not alarms and not run.summary.problems:
            words = f"{words}; a recorded limit was too near to noise or mutants"
    if run.summary is None:
        return f"**{run.state}**; {words}"
    said = meaning(run.header.verb, run.summary.exit_code)
    return f"{f'**{said}**' if run.summary.exit_code else said}: {words}; exit code {run.summary.exit_code}"


def counts(run: Results) -> str:
    """Return how many verdicts of each status there are on subjects as they are, what is wrong first."""
    found: Counter[str] = Counter(shown(verdict) for verdict in run.judged)
    for block in run.blocks:
        found.update(block.counts)
    told = ((found[status], DOCUMENTED if status == DEPARTS else status) for status in STATUSES if found[status])
    return ", ".join(f"{number} {words}" for number, words in told) or "no verdict"


def lines(run: Results) -> list[str]:
    """Return the heading, the sentence, and the table of what was asked."""
    h = run.header
    commit = f"{h.commit[:12]}{' (dirty)' if h.dirty else ''}" if h.commit else "no checkout"
    rows = [
        ("state", in_table(run.state)),
        ("command", code(f"gates {' '.join(h.command)}", cell=True)),
        ("started", in_table(h.started)),
        ("judge", in_table(f"{h.tool}, commit {commit}, Python {h.python}, NumPy {h.numpy} ({h.blas})")),
        ("machine", in_table(f"{h.machine.cpu}, {h.machine.cores} cores, {h.machine.system}")),
        ("features", in_table(" ".join(h.machine.features) or "not told")),
        ("run", f"seed {h.seed}, {h.jobs} workers × {h.threads} threads{', quick' * h.quick}{', all draws' * h.full}"),
        *((f"subject {in_table(names)}", in_table(told)) for names, told in versions(run.subjects)),
        *((f"model {in_table(m.hash[:12])}", in_table(_named(m.spec))) for m in run.models),
    ]
    table = ["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows), ""]
    return [f"## {h.verb} {one_line(run.path.stem)}", "", f"{outcome(run)}.", "", *table]


def _named(values: dict[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in sorted(values.items()))
