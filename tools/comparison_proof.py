"""Measure the error rates of `gates bench compare`: on identical builds, and on an artificial slowdown of 5%.

    .venv/bin/python tools/comparison_proof.py            # 150 runs of one build against itself, 100 with +5% in B
    .venv/bin/python tools/comparison_proof.py --short    # two of each, as a test does

Each run compares two kernels in the same processes: k3 on 32x512 and group advantages on 256x16, both of some
microseconds. The slowdown is real work: B makes 21 calls but counts 20. Lines are appended to
results/statistics/comparisons.jsonl; an interrupted run is resumed.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from benches import compare

ROOT = Path(__file__).parents[1]
FILE = ROOT / "results" / "statistics" / "comparisons.jsonl"
NAMES = ("token_kl k3 32x512", "group_advantages 256x16")
RUNS = {0.0: 150, 0.05: 100}
SHORT = {0.0: 2, 0.05: 2}
MOST_S = 20.0  # longest duration of one comparison of one kernel


def compared(build: compare.Build, planted: float, pairs: int) -> list[dict[str, Any]]:
    """Return the lines of one run, one for each kernel."""
    start = time.monotonic()
    taken = compare.in_pairs(build, build, NAMES, pairs=pairs, seconds=compare.SECONDS, extra=planted)
    seconds = (time.monotonic() - start) / len(NAMES)
    lines = []
    for name in NAMES:
        ratio, control, verdict = compare.judged(*taken[name])
        facts = {"ratio": ratio.value, "low": ratio.low, "high": ratio.high, "control": control.value}
        facts = {key: round(value, 5) for key, value in facts.items()}
        load = round(os.getloadavg()[0], 2)
        lines.append(
            {
                "kernel": name,
                "planted": planted,
                "verdict": verdict,
                **facts,
                "seconds": round(seconds, 1),
                "load": load,
            }
        )
    return lines


def counted(lines: Sequence[Mapping[str, Any]]) -> dict[tuple[str, float], dict[str, int]]:
    """Count, for each kernel and slowdown, the comparisons and those called slower or faster."""
    counts: dict[tuple[str, float], dict[str, int]] = {}
    for line in lines:
        total = counts.setdefault((line["kernel"], line["planted"]), {"comparisons": 0, "slower": 0, "faster": 0})
        total["comparisons"] += 1
        if line["verdict"] in total:
            total[line["verdict"]] += 1
    return counts


def main() -> int:
    """Return 0 if no comparison of identical builds was decided, and 95 of 100 slowdowns were detected."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--short", action="store_true", help="two runs of each kind; nothing is written")
    options = parser.parse_args()
    build = compare.build(compare.HERE, print)
    lines: list[dict[str, Any]] = []
    if not options.short and FILE.exists():
        lines = [json.loads(line) for line in FILE.read_text(encoding="utf-8").splitlines() if line.endswith("}")]
    for planted, runs in (SHORT if options.short else RUNS).items():
        done = sum(line["planted"] == planted and line["seconds"] <= MOST_S for line in lines) // len(NAMES)
        for number in range(done, runs):
            measured = compared(build, planted, compare.PAIRS)
            lines += measured
            verdicts = ", ".join(f"{line['ratio']:.3f} {line['verdict']}" for line in measured)
            print(f"{number + 1} of {runs}, +{planted:.0%}: {verdicts}", flush=True)
            if not options.short:
                FILE.parent.mkdir(parents=True, exist_ok=True)
                with FILE.open("a", encoding="utf-8") as file:
                    file.write("".join(json.dumps(line) + "\n" for line in measured))
    good = True
    for (kernel, planted), total in counted(lines).items():
        print(f"{kernel}, +{planted:.0%}: {total}")
        wrong = total["slower"] + total["faster"] if not planted else 0
        good &= wrong == 0 and (not planted or total["slower"] >= 0.95 * total["comparisons"])
    late = sum(line["seconds"] > MOST_S for line in lines)
    print(f"{late} comparisons took longer than {MOST_S:g} s, beside a heavy load: they were made again, and count too")
    return int(not good)


if __name__ == "__main__":
    sys.exit(main())
