"""Where the functions of a run's subjects are defined."""

from __future__ import annotations

from gates.results.jsonl import Results
from gates.results.records import Location


def source(run: Results, subject: str, op: str) -> Location | None:
    """Return file and line of the function behind an op such as `policy_loss[grpo]`, if the subject has reported them."""
    name = op.partition("[")[0]
    known = [
        record.locations[name] for record in run.subjects if record.subject == subject and name in record.locations
    ]
    return known[-1] if known else None
