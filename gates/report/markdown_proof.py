"""Render a proof in markdown: mutants not caught, the score of each family, every mutant, the margin of each gate."""

from __future__ import annotations

from collections import defaultdict

from gates.model import FAILURES
from gates.report import proof_table
from gates.results.escape import code, in_table
from gates.results.jsonl import Results
from gates.results.records import VerdictRecord


def lines(run: Results) -> list[str]:
    """Return the sections of one proof."""
    return [*_baseline_failures(run), *_missed(run), *_scores(run), *_mutants(run), *_margins(run)]


def summary(run: Results) -> list[str]:
    """Return what is not in order, and the score of each family."""
    table = [line for line in _scores(run) if not line.startswith("###")]
    return [*_baseline_failures(run), *_missed(run), *table]


def _baseline_failures(run: Results) -> list[str]:
    """Return what fails in the unmutated baseline run, in which everything must pass."""
    found = sorted(
        f"- **{in_table(v.subject)}** {code(v.gate)} {in_table(v.case)}: {v.status}: {in_table(v.reason)}"
        for v in run.judged
        if v.status in {*FAILURES, "error"}
    )
    return ["### What fails without a mutant", "", *found, ""] if found else []


def _missed(run: Results) -> list[str]:
    wrong = [m for m in run.mutants if m.state != "caught"]
    lines_ = [f"- {m.state}: **{in_table(m.mutant)}** in {in_table(m.host)}: {in_table(m.reason)}" for m in wrong]
    return ["### Mutants that were not caught", "", *lines_, ""] if lines_ else []


def _scores(run: Results) -> list[str]:
    if not run.mutants:
        return []
    rows = [
        f"| {in_table(s.family)} | {s.declared} | {s.caught} | {s.caught / s.declared:.0%} |"
        for s in proof_table.scores(run.mutants)
    ]
    return ["### Score of each family", "", "| family | mutants | caught | score |", "|---|---|---|---|", *rows, ""]


def _mutants(run: Results) -> list[str]:
    by_mutant: dict[str, dict[str, list[VerdictRecord]]] = defaultdict(lambda: defaultdict(list))
    for v in run.verdicts:
        if v.mutant:
            by_mutant[v.mutant][v.gate].append(v)
    rows = []
    for name, gates in sorted(by_mutant.items()):
        for gate, here in sorted(gates.items()):
            failed = [v for v in here if v.status in FAILURES]
            words = in_table(failed[0].reason) if failed else "nothing"
            names = f"{in_table(name)} | {in_table(here[0].subject)} | {code(gate, cell=True)}"
            rows.append(f"| {names} | {len(failed)} of {len(here)} cases | {words} |")
    return ["### Every mutant", "", "| mutant | host | gate | caught | by |", "|---|---|---|---|---|", *rows, ""]


def _margins(run: Results) -> list[str]:
    found = [
        "### The margin of each gate",
        "",
        "Noise and effect are shares of a gate's limit: the largest of a correct subject, and the smallest of a mutant that",
        "was caught (∞: no number, or not a finite one). Their quotient is how well the gate separates them.",
        "",
        "| gate | noise | by | least effect | of mutant | least relative error noticed |",
        "|---|---|---|---|---|---|",
    ]
    for m in proof_table.margins(run.verdicts, run.sensitivities, run.header.gates):
        noticed = f"{m.noticed:.1e}" if m.noticed is not None else "–"
        found.append(
            f"| {code(m.gate, cell=True)} | {proof_table.share(m.noise)} | {in_table(m.noisiest)} "
            f"| {proof_table.share(m.effect)} | {in_table(m.weakest)} | {noticed} |"
        )
    return [*found, ""]
