"""Recorded results as markdown: a pure function of the files."""

from __future__ import annotations

import shlex
from collections import Counter, defaultdict
from collections.abc import Iterable

from gates.report import calibration, calibration_sum, proof_table
from gates.report.jsonl import Results
from gates.report.labels import shown
from gates.report.records import CounterexampleRecord, EvidenceRecord, VerdictRecord
from gates.report.visible import in_table, one_line


def render(runs: Iterable[Results]) -> str:
    """Return one document over all runs, in the order given; in its end what all calibrations say together."""
    runs = list(runs)
    parts = [
        "# Gates: recorded results",
        "",
        "Rendered by `gates report`; every number below is in the JSONL it names.",
        "",
    ]
    for run in runs:
        if run.header.verb == "calibrate":
            parts += [*_head(run), *calibration.lines(run)]
        else:
            parts += _check(run) if run.header.verb == "check" else _proof(run)
    parts += calibration_sum.lines(runs)
    return "\n".join(parts).rstrip() + "\n"


def _head(run: Results) -> list[str]:
    h = run.header
    commit = f"{h.commit[:12]}{' (dirty)' if h.dirty else ''}" if h.commit else "no checkout"
    rows = [
        ("state", run.state),
        ("command", f"`gates {' '.join(h.command)}`"),
        ("started", h.started),
        ("judge", f"{h.tool}, commit {commit}, Python {h.python}, NumPy {h.numpy} ({h.blas})"),
        ("machine", f"{h.machine.cpu}, {h.machine.cores} cores, {h.machine.system}"),
        ("features", " ".join(h.machine.features) or "not told"),
        (
            "run",
            f"seed {h.seed}, {h.jobs} workers × {h.threads} threads{', quick' if h.quick else ''}{', all draws' if h.full else ''}",
        ),
    ]
    rows += [
        (f"subject {s.subject}", ", ".join(f"{k} {v}" for k, v in sorted(s.versions.items()))) for s in run.subjects
    ]
    rows += [(f"model {m.hash[:12]}", ", ".join(f"{k} {v}" for k, v in sorted(m.spec.items()))) for m in run.models]
    return [
        f"## {h.verb} {one_line(run.path.stem)}",
        "",
        "| | |",
        "|---|---|",
        *(f"| {in_table(k)} | {in_table(v)} |" for k, v in rows),
        "",
    ]


def _check(run: Results) -> list[str]:
    lines = [*_head(run), *matrix(run.verdicts)]
    for status, title in (("fail", "Failures"), ("error", "Errors of the judge")):
        found = [v for v in run.verdicts if v.status == status]
        if found:
            lines += [f"### {title}", ""]
            lines += [in_table(f"- **{v.subject}** `{v.gate}` {v.case}: {v.reason}") for v in sorted(found, key=_order)]
            lines.append("")
    lines += _smallest(run.counterexamples)
    lines += _waived(run.verdicts)
    if run.summary and run.summary.problems:
        lines += ["### What else fails the run", "", *(f"- {in_table(words)}" for words in run.summary.problems), ""]
    holes = Counter((v.subject, v.status, v.reason) for v in run.verdicts if v.status in {"skipped", "unsupported"})
    if holes:
        lines += ["### Not judged", ""]
        lines += [
            in_table(f"- {status}: {subject}: {reason} ({n})") for (subject, status, reason), n in sorted(holes.items())
        ]
        lines.append("")
    lines += _closest(run.verdicts)
    if run.summary:
        counts = ", ".join(f"{n} {status}" for status, n in run.summary.counts.items() if n)
        lines += [f"{counts}; exit code {run.summary.exit_code}.", ""]
    return lines


def _smallest(found: list[CounterexampleRecord]) -> list[str]:
    """Return each failure on its smallest input, and the command that judges it again from the folder of the results."""
    lines = []
    for item in sorted(found, key=lambda item: (item.subject, item.gate, item.case)):
        where = f"- **{item.subject}** `{item.gate}` {item.case}"
        again = f"; `gates replay {shlex.quote(item.file)}`" if item.file else ""
        if item.elements_after is None:
            lines.append(in_table(f"{where}: not made smaller: {item.words}{again}"))
            continue
        cut = "" if item.finished else ", when the time was over"
        size = f"{item.elements_before} → {item.elements_after} {item.unit}{cut}"
        lines.append(in_table(f"{where} ({size}): {item.words}{again}"))
    return ["### Smallest inputs that still fail", "", *lines, ""] if lines else []


def _waived(verdicts: list[VerdictRecord]) -> list[str]:
    """Return who answers for what until when, and the reason that each verdict has all the same."""
    lines = [
        in_table(
            f"- **{v.subject}** `{v.gate}` {v.case}: {v.reason}; {v.waived.status} waived until {v.waived.expires} "
            f"by {v.waived.owner}, {v.waived.issue}: {v.waived.reason}"
        )
        for v in sorted(verdicts, key=_order)
        if v.waived
    ]
    return ["### Waived", "", *lines, ""] if lines else []


def matrix(verdicts: list[VerdictRecord]) -> list[str]:
    """Return the table of gates and subjects over verdicts, one run's or several."""
    cells: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for v in verdicts:
        cells[in_table(v.gate), in_table(v.subject)][shown(v)] += 1
    gates = sorted({gate for gate, _ in cells})
    subjects = sorted({subject for _, subject in cells})
    lines = ["| gate | " + " | ".join(subjects) + " |", "|---|" + "---|" * len(subjects)]
    rows = ((gate, [_cell(cells.get((gate, s), Counter())) for s in subjects]) for gate in gates)
    lines += [f"| `{gate}` | " + " | ".join(row) + " |" for gate, row in rows]
    return [*lines, ""]


def _cell(counts: Counter[str]) -> str:
    total = sum(counts.values())
    if not total:
        return ""
    shown = [
        f"{'**' if s in {'fail', 'error'} else ''}{s} {n}{'**' if s in {'fail', 'error'} else ''}"
        for s, n in counts.items()
    ]
    return ", ".join(sorted(shown))


def _closest(verdicts: list[VerdictRecord]) -> list[str]:
    """Return, for each gate and subject that passed, the evidence that came nearest to its limit."""
    best: dict[tuple[str, str], tuple[float, EvidenceRecord, str]] = {}
    for v in verdicts:
        if v.status != "pass":
            continue
        for item in v.evidence:
            if item.role != "claim" or item.relation != "<=":
                continue
            share = item.observed / item.limit if item.limit else 0.0
            if (v.gate, v.subject) not in best or share > best[v.gate, v.subject][0]:
                best[v.gate, v.subject] = (share, item, v.case)
    if not best:
        return []
    lines = [
        "### Nearest to the limit, of what passed",
        "",
        "| gate | subject | quantity | observed | limit | case |",
        "|---|---|---|---|---|---|",
    ]
    for (gate, subject), (_, item, case) in sorted(best.items()):
        lines.append(
            f"| `{in_table(gate)}` | {in_table(subject)} | {in_table(item.quantity)} | {item.observed:.3g} | {item.limit:.3g} "
            f"| {in_table(case)} |"
        )
    return [*lines, ""]


def _proof(run: Results) -> list[str]:
    lines = _head(run)
    by_mutant: dict[str, list[VerdictRecord]] = defaultdict(list)
    for v in run.verdicts:
        if v.mutant:
            by_mutant[v.mutant].append(v)
    if run.mutants:
        lines += ["| family | mutants | caught | score |", "|---|---|---|---|"]
        for s in proof_table.scores(run.mutants):
            lines.append(f"| {in_table(s.family)} | {s.declared} | {s.caught} | {s.caught / s.declared:.0%} |")
        lines.append("")
        if wrong := [m for m in run.mutants if m.state != "caught"]:
            lines += ["### Mutants that were not caught", ""]
            lines += [in_table(f"- {m.state}: **{m.mutant}** in {m.host}: {m.reason}") for m in wrong] + [""]
    lines += ["| mutant | host | gate | caught | by |", "|---|---|---|---|---|"]
    for name, verdicts in sorted(by_mutant.items()):
        for gate in sorted({v.gate for v in verdicts}):
            here = [v for v in verdicts if v.gate == gate]
            failed = [v for v in here if v.status == "fail"]
            words = in_table(failed[0].reason) if failed else "nothing"
            names = f"{in_table(name)} | {in_table(here[0].subject)} | `{in_table(gate)}`"
            lines.append(f"| {names} | {len(failed)} of {len(here)} cases | {words} |")
    lines += [
        "",
        "Noise and effect are shares of a gate's limit: what a correct subject used of it at most, and what the least",
        "mutant that it caught took (∞: no number, or not a finite one). A gate separates them by their quotient.",
        "",
        "| gate | noise | by | least effect | of mutant | least relative error noticed |",
        "|---|---|---|---|---|---|",
    ]
    for m in proof_table.margins(run.verdicts, run.sensitivities, run.header.gates):
        noticed = f"{m.noticed:.1e}" if m.noticed is not None else "–"
        lines.append(
            f"| `{in_table(m.gate)}` | {proof_table.share(m.noise)} | {in_table(m.noisiest)} | {proof_table.share(m.effect)} "
            f"| {in_table(m.weakest)} | {noticed} |"
        )
    return [*lines, ""]


def _order(v: VerdictRecord) -> tuple[str, str, str]:
    return v.subject, v.gate, v.case
