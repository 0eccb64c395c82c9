"""Compare two recorded runs of the same plan: list verdicts and results of mutants that differ.

Usage: python tools/compare_runs.py BEFORE AFTER [--out FILE.json]

BEFORE and AFTER are results files of `gates check` or `gates prove`, `.jsonl` or `.jsonl.gz`. A verdict is identified by
gate, subject, case, seed and mutant; status and cause are compared. Exit code 0: nothing differs, ignoring subjects that are
absent on one of the machines; 1: something differs; 2: usage.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from gates.results.jsonl import Results, read

Verdicts = dict[tuple[str, ...], tuple[str, str]]
SHOWN = 20  # most differences printed; the file of --out has all


def verdicts_of(run: Results) -> Verdicts:
    """Return status and cause of each verdict by its name."""
    return {
        (verdict.gate, verdict.subject, verdict.case, str(verdict.seed), verdict.mutant or ""): (
            verdict.status,
            verdict.cause,
        )
        for verdict in run.verdicts
    }


def absent(verdicts: Verdicts) -> set[str]:
    """Return the absent subjects, whose verdicts are all `skipped`."""
    by_subject: dict[str, set[str]] = {}
    for (_, subject, *_), (status, _) in verdicts.items():
        by_subject.setdefault(subject, set()).add(status)
    return {subject for subject, statuses in by_subject.items() if statuses == {"skipped"}}


def compare(before: Path, after: Path) -> dict[str, Any]:
    """Return the differences of two runs, and the number of compared items."""
    runs = read(before), read(after)
    old, new = map(verdicts_of, runs)
    old_mutants, new_mutants = ({mutant.mutant: mutant.state for mutant in run.mutants} for run in runs)
    missing = absent(old) | absent(new)
    kept = [{name: v for name, v in side.items() if name[1] not in missing} for side in (old, new)]
    changed = {
        " · ".join(filter(None, name)): [status_of(kept[0], name), status_of(kept[1], name)]
        for name in sorted({*kept[0], *kept[1]})
        if kept[0].get(name) != kept[1].get(name)
    }
    states = {
        name: [old_mutants.get(name, "not there"), new_mutants.get(name, "not there")]
        for name in sorted({*old_mutants, *new_mutants})
        if old_mutants.get(name) != new_mutants.get(name)
    }
    return {
        "verb": runs[1].header.verb,
        "before": side_of(runs[0], old),
        "after": side_of(runs[1], new),
        "subjects absent on one machine": sorted(missing),
        "verdicts compared": len(kept[0].keys() & kept[1].keys()),
        "verdicts that differ": changed,
        "mutants compared": len(old_mutants.keys() & new_mutants.keys()),
        "mutants caught": Counter(new_mutants.values()).get("caught", 0),
        "mutants that differ": states,
    }


def status_of(verdicts: Verdicts, name: tuple[str, ...]) -> str:
    """Return a verdict as text."""
    return " by ".join(verdicts[name]) if name in verdicts else "not there"


def side_of(run: Results, verdicts: Verdicts) -> dict[str, Any]:
    """Return the description of one of the two runs."""
    statuses = Counter(status for status, _ in verdicts.values())
    return {
        "file": run.path.name,
        "command": run.header.command,
        "commit": run.header.commit,
        "cpu": run.header.machine.cpu,
        "verdicts": dict(sorted(statuses.items())),
    }


def main() -> int:
    """Print the differences and return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--out", type=Path, help="write the comparison here too, as JSON")
    options = parser.parse_args()
    differences = compare(options.before, options.after)
    if options.out:
        options.out.write_text(json.dumps(differences, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    differing = {**differences["verdicts that differ"], **differences["mutants that differ"]}
    for name, (old, new) in list(differing.items())[:SHOWN]:
        print(f"{name}: {old} before, {new} after")
    print(
        f"{differences['verdicts compared']} verdicts and {differences['mutants compared']} mutants compared, {len(differing)} differ; "
        f"absent on one machine: {', '.join(differences['subjects absent on one machine']) or 'nobody'}"
    )
    return int(bool(differing))


if __name__ == "__main__":
    sys.exit(main())
