"""Read files of format 1, from before verdicts were grades: a pass is `correct`, a failure `wrong`."""

from __future__ import annotations

import json
from typing import Any

FORMAT = 1
DEFINITIONS = "1.1"  # version of the definitions in those files
STATUS = {"pass": "correct", "fail": "wrong"}


def translated(line: bytes) -> bytes:
    """Convert a format-1 line; leave any other line unchanged."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return line
    match record:
        case {"record": "header"}:
            record |= {"format": 2, "definitions": DEFINITIONS, "fail_on": "imprecise"}
        case {"record": "verdict", "status": str()}:
            _verdict(record)
        case {"record": "calibration", "false_positives": list()}:
            for false_positive in record["false_positives"]:
                false_positive["status"] = STATUS.get(false_positive["status"], false_positive["status"])
        case {"record": "summary", "counts": dict()}:
            record["counts"] = {STATUS.get(name, name): count for name, count in record["counts"].items()}
            if record["exit_code"] == 1 and not (record["problems"] or record["counts"].get("wrong")):
                record["exit_code"] = 4  # format 1 used exit code 1 for faults of Gates
        case _:
            return line
    return json.dumps(record).encode()


def _verdict(record: dict[str, Any]) -> None:
    record["status"] = STATUS.get(record["status"], record["status"])
    record |= {"op": "", "level": "definition"}  # so that a report grades each gate
    if isinstance(record.get("waived"), dict):
        record["waived"]["status"] = STATUS.get(record["waived"]["status"], record["waived"]["status"])
