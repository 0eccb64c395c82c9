"""A calibration that was stopped goes on in its own file: what is there, and whether it is the same run."""

from __future__ import annotations

from pathlib import Path

from gates.model import ConfigurationError
from gates.results.jsonl import Results, read
from gates.results.records import HeaderRecord

SAME = ("verb", "seed", "seeds", "quick", "full", "gates", "subjects", "planned", "beside")
MOST = 3  # gates that a refusal names


def resumed(path: Path, header: HeaderRecord) -> Results:
    """Return what a file holds of the run that is asked for.

    Raises:
        ConfigurationError: if it is another run; or, unless it is complete, one of another commit, code or machine, for then
            the seeds that are left would be of other gates than those that are there. (The commit is not enough: it says
            nothing of what was edited since.)
    """
    results = read(path)
    for name in SAME if results.summary else (*SAME, "commit"):
        old, new = getattr(results.header, name), getattr(header, name)
        if old != new:
            raise ConfigurationError(
                f"--resume {path}: its {name} is {_short(old)}, and this command's {_short(new)}; "
                "repeat the command of the file, or begin a new one"
            )
    old_codes, new_codes = results.header.codes, header.codes
    changed = sorted(gate for gate in new_codes if old_codes.get(gate) != new_codes[gate])
    if results.summary is None and changed:
        more = f" and {len(changed) - MOST} more" if len(changed) > MOST else ""
        raise ConfigurationError(
            f"--resume {path}: the code or the limits of {', '.join(changed[:MOST])}{more} are others than when it began; "
            "begin a new file"
        )
    if results.summary is None and results.header.machine.cpu != header.machine.cpu:
        raise ConfigurationError(
            f"--resume {path}: it began on {results.header.machine.cpu}, this is {header.machine.cpu}; begin a new file"
        )
    return results


def _short(value: object) -> str:
    words = repr(value)
    return words if len(words) <= 60 else f"{words[:57]}…"
