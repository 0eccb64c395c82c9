"""Judge plain programs at many seeds, none of which may be called wrong; `make record` records results/judge/honest.json.

    .venv/bin/python tools/honest_proof.py                    # every program at 1000 seeds: half an hour
    .venv/bin/python tools/honest_proof.py --seeds 100        # recorded too; fewer seeds are not
    .venv/bin/python tools/honest_proof.py kl --seeds 20      # one family, not recorded
    .venv/bin/python tools/honest_proof.py ratio --again      # after a change of its gates; updates the record
    .venv/bin/python tools/honest_proof.py numpy_kl_expm1 --again  # one program
    TORCH_PYTHON=env/bin/python JAX_PYTHON=env/bin/python .venv/bin/python tools/honest_proof.py

Every case is judged at 20 seeds. Each further seed judges a twelfth of the quick cases in turn, which cover every regime, so
that every op is judged at all seeds and each quick case at a hundred.

The programs are tests/honest/FRAMEWORK_FAMILY.py: each op as an ordinary author writes it, in the data's dtype. Only
claims that are graded `wrong` are judged (definitions and laws). Programs of PyTorch and JAX need an interpreter that has the
framework in TORCH_PYTHON and JAX_PYTHON; without it, or without MLX, they are listed as left out.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import proofs

sys.path.insert(0, str(proofs.ROOT))

from gates.model import IN_LIMITS, NOT_JUDGED, Gate, Subject, Verdict
from gates.registry import load
from gates.report.progress import Bar
from gates.results.atomic_write import write_whole
from gates.run.execute import opened
from gates.run.plan import Options, PlannedCase, plan, runs_a_model
from gates.subjects import catalogue

PROGRAMS = proofs.ROOT / "tests" / "honest"
RECORD = proofs.ROOT / "results" / "judge" / "honest.json"
SEEDS = 1000
LEAST = 100  # least seeds of a record
EVERY_CASE = 20  # seeds at which all cases are judged
TURNS = 12  # after these, a quick case is judged at every twelfth seed
BLOCK = 100  # seeds that share workers, since torch takes seconds to start
ASKED = frozenset(("definition", "law"))  # levels of claims that can make a program wrong
MODULES = {"numpy": "numpy", "mlx": "mlx", "torch": "torch", "jax": "jax"}


@dataclass(slots=True)
class Seen:
    """The results of one program: verdicts by status, and the claims of definitions nearest to their limits."""

    statuses: Counter[str] = field(default_factory=Counter)
    nearest: dict[str, tuple[float, str, int]] = field(default_factory=dict)  # by gate: share, case, seed
    refused: list[str] = field(default_factory=list)

    def add(self, verdict: Verdict, seed: int) -> None:
        """Count a verdict."""
        self.statuses[verdict.status] += 1
        if verdict.status in {"wrong", "error", "timeout"}:
            self.refused.append(f"{verdict.where}, seed {seed}: {verdict.reason}")
        for item in verdict.evidence:
            if item.role == "claim" and item.quantity.endswith(IN_LIMITS):
                self.nearest[verdict.gate] = max(
                    self.nearest.get(verdict.gate, (-1.0, "", 0)), (item.observed, verdict.case, seed)
                )

    def record(self) -> dict[str, Any]:
        """Return the record."""
        near = {gate: [float(f"{share:.3g}"), case, seed] for gate, (share, case, seed) in sorted(self.nearest.items())}
        return {"verdicts": dict(sorted(self.statuses.items())), "nearest": near, "refused": self.refused[:20]}


def interpreter(framework: str) -> tuple[str | None, str]:
    """Return the interpreter for a framework's programs (None: this one), and why it is missing."""
    named = os.environ.get(f"{framework.upper()}_PYTHON")
    if named:
        return named, ""
    if importlib.util.find_spec(MODULES[framework]):
        return None, ""
    return None, f"{framework} is not installed; {framework.upper()}_PYTHON names an interpreter that has it"


def programs(folder: Path, families: Sequence[str]) -> Iterator[tuple[Path, str, Subject | None, str]]:
    """Yield each program with its family, as a subject or with the reason why it is left out."""
    for path in sorted(folder.glob("*_*.py")):
        framework, _, rest = path.stem.partition("_")
        family = rest.partition("_")[0]
        if framework not in MODULES or (families and not {family, path.stem} & set(families)):
            continue
        python, why = interpreter(framework)
        yield path, family, None if why else catalogue.from_file(str(path), python), why


def cases_for(subject: Subject, gates: Sequence[Gate]) -> list[PlannedCase]:
    """Return the cases of pure ops with claims that are graded `wrong`."""
    planned = plan(gates, [subject], quick=False)
    return [item for item in planned if (item.case.level or item.gate.level) in ASKED]


def judge(subjects: Sequence[Subject], gates: Sequence[Gate], seeds: range, jobs: int) -> dict[str, Seen]:
    """Judge the programs of one family at every seed, in blocks that share the oracle's results.

    Unsupported cases of a program are judged once.
    """
    seen = {subject.name: Seen() for subject in subjects}
    cases = [item for subject in subjects for item in cases_for(subject, gates)]
    blocks = [seeds[:1], seeds[1:EVERY_CASE], *(seeds[k : k + BLOCK] for k in range(EVERY_CASE, len(seeds), BLOCK))]
    with opened(Options(jobs=jobs)) as executor, Bar(f"{len(subjects)} programs", len(cases) * len(seeds)) as bar:
        for block in blocks:
            if block and block[0] >= EVERY_CASE:
                cases = [item for item in cases if item.case.quick]
            left: set[tuple[str, str, str]] = set()
            turns = TURNS if block and block[0] >= EVERY_CASE else 1
            judging = [(seed, item) for seed in block for k, item in enumerate(cases) if (k + seed) % turns == 0]
            executor.submit([replace(item, seed=seed) for seed, item in judging])
            for judged in executor.judged():
                verdict = judged.verdict
                seen[verdict.subject].add(verdict, judged.seed or 0)
                bar.advance(verdict.where)
                if verdict.status in NOT_JUDGED:
                    left.add((verdict.gate, verdict.subject, verdict.case))
            cases = [item for item in cases if item.names not in left]
    return seen


def main() -> int:
    """Return 1 if any program is called wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "families", nargs="*", help="such as kl, loss, or programs such as numpy_kl_expm1; default: all"
    )
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument(
        "--again", action="store_true", help="record these families anew, beside the others of the record"
    )
    parser.add_argument("--programs", type=Path, default=PROGRAMS, help="their folder")
    options = parser.parse_args()
    pure = [gate for gate in load().gates.values() if not runs_a_model(gate)]
    document: dict[str, Any] = {}
    began, refused, interrupted = time.monotonic(), 0, False
    if options.again and options.seeds < LEAST:
        parser.error(f"--seeds is {options.seeds}, must be {LEAST} at least to be recorded")
    whole = not options.families and options.seeds >= LEAST and options.programs == PROGRAMS
    try:
        families: dict[str, list[Subject]] = defaultdict(list)
        for path, family, subject, why in programs(options.programs, options.families):
            if subject is None:
                document[path.name] = {"left_out": why}
                print(f"{path.name}: left out: {why}")
            else:
                families[family].append(subject)
        for family, subjects in families.items():
            start = time.monotonic()
            for name, seen in judge(subjects, pure, range(options.seeds), options.jobs).items():
                refused += len(seen.refused)
                print(f"{name}: {dict(seen.statuses)}", *(f"  {refusal}" for refusal in seen.refused[:10]), sep="\n")
                document[f"{name}.py"] = seen.record()
            print(f"{family}: {time.monotonic() - start:.0f} s", flush=True)
    except KeyboardInterrupt:
        whole, interrupted = False, True
        print("interrupted: the programs above were judged, nothing is recorded", file=sys.stderr)
    if options.again and options.families and not interrupted:
        known = json.loads(RECORD.read_text(encoding="utf-8"))
        own = {} if options.seeds == known["seeds"] else {"seeds": options.seeds}
        known["programs"].update({name: {**own, **program} for name, program in document.items()})
        known["again"] = {**known.get("again", {}), **dict.fromkeys(options.families, proofs.revision())}
        write_whole(RECORD, json.dumps(known, indent=1) + "\n")
    if whole:
        record = {
            "seeds": options.seeds,
            "seeds_of_every_case": EVERY_CASE,
            "turns": TURNS,
            "commit": proofs.revision(),
            "python": platform.python_version(),
            "seconds": round(time.monotonic() - began),
            "programs": document,
        }
        write_whole(RECORD, json.dumps(record, indent=1) + "\n")
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main())
