"""Record how libraries fare on rare input, over the cases of an op that all of them were asked.

.venv/bin/python tools/peer_common.py RUN.jsonl ...    # writes results/conformance/common.json

A run is what `gates check --subject NAME` records, one for each library. Records of conformance hold sums over an op's cases,
which differ between libraries: who has more conventions is asked more. So this needs the verdicts.
"""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from gates.model import NOT_JUDGED  # noqa: E402
from gates.report.conformance.words import GOOD  # noqa: E402
from gates.results.atomic_write import write_whole  # noqa: E402
from gates.results.common_cases import FILE  # noqa: E402
from gates.results.jsonl import read  # noqa: E402

Asked = dict[str, dict[str, dict[tuple[str, str], str]]]  # op: library: gate and case: status


def asked(runs: Iterable[Path]) -> Asked:
    """Return the judged cases of each op and library, without the library's variants."""
    found: Asked = defaultdict(lambda: defaultdict(dict))
    for path in runs:
        for verdict in read(path).verdicts:
            if verdict.status not in NOT_JUDGED and "@" not in verdict.subject:
                found[verdict.op][verdict.subject][verdict.gate, verdict.case] = verdict.status
    return found


def common(found: Asked) -> dict[str, Any]:
    """Return the ops of two libraries or more that have cases in common, with what each fails there."""
    ops = {}
    for op, libraries in sorted(found.items()):
        shared = set.intersection(*(set(cases) for cases in libraries.values()))
        if len(libraries) > 1 and shared:
            counts = {peer: Counter(cases[case] for case in shared) for peer, cases in sorted(libraries.items())}
            ops[op] = {
                "cases": len(shared),
                "libraries": {
                    peer: {status: count[status] for status in sorted(count) if status not in GOOD}
                    for peer, count in counts.items()
                },
            }
    return ops


def main(runs: list[str]) -> None:
    """Write the record of these runs."""
    paths = [Path(name) for name in runs]
    headers = [read(path).header for path in paths]
    record = {"commits": sorted({str(header.commit) for header in headers}), "ops": common(asked(paths))}
    write_whole(ROOT / "results" / "conformance" / FILE, json.dumps(record, indent=1, ensure_ascii=False) + "\n")
    print(f"{len(record['ops'])} ops of two libraries or more, from {len(paths)} runs")


if __name__ == "__main__":
    main(sys.argv[1:])
