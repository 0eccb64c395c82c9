"""Diagnose wrong programs and compare with their expected names; recorded in results/judge/diagnosis.json.

    .venv/bin/python tools/diagnosis_proof.py                    # every program: two minutes; recorded
    .venv/bin/python tools/diagnosis_proof.py loss_max_for_min   # one program, not recorded

The programs are tests/bugs/{blind,known,odd,unseen,fresh,second}/FAMILY_NAME.py, each a whole subject with one bug or two. Those of
`blind` were written before their author had seen the edits of gates/diagnosis, those of `known` together with the edits, and
those of `odd` to be unlike any edit. `unseen`, `fresh` and `second` were written by three authors who never saw an edit or
a mutant, and committed before the first measurement (`FIRST`); edits were added between the three. Each is judged by the definitions of its op, and wrong ops are diagnosed as in `gates check`. A
program has its expectation: COMPUTES is part of the name, or None if no edit or pair of edits is this bug; then WHERE is
part of the reported location. Unseen programs have SAYS instead, what any honest name says: of each text one of the words
between bars. Where a right name has other words, `RIGHT` holds them. Mutants are no evidence of naming: most are edits, which the search holds as candidates.

A program is `named` (as expected), `unnamed` (nothing known, or two definitions that match equally), or `misnamed` (another
name than the expected one). The proof fails if a program is misnamed or not diagnosed, if a location is not the expected
one, or if fewer than nine in ten of the programs that can be named are.
"""

from __future__ import annotations

import argparse
import ast
import json
import math
import os
import platform
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import proofs

sys.path.insert(0, str(proofs.ROOT))

from gates.diagnosis.collect import NAMED, Diagnoser
from gates.model import Subject
from gates.registry import load
from gates.report.progress import Bar
from gates.results.atomic_write import write_whole
from gates.results.records import DiagnosisRecord
from gates.run.execute import opened
from gates.run.plan import Options, PlannedCase, plan, runs_a_model
from gates.subjects import catalogue

FOLDERS = tuple(
    proofs.ROOT / "tests" / "bugs" / name for name in ("blind", "known", "odd", "unseen", "fresh", "second")
)
RIGHT = {  # right names that the author's words do not foresee, read by hand
    "unseen/loss_arithmetic_row_ratio.py": "the mean of a row's ratios, not exp of the mean",
    "unseen/loss_cap_not_detached.py": "a capped ratio that has a gradient",
    "unseen/loss_rows_not_averaged.py": "sum over tokens / L_max, not divided by B",
    "fresh/loss_capped_tokens_dropped.py": "tokens beyond the cap left out, not weighed by the cap",
    "fresh/weights_bounds_of_logs.py": "bounds of D, not of exp(D)",
    "second/advantages_layout.py": "groups of every P-th row (P prompts), as if rows were member-major",
    "second/kl_axis.py": "the sum of each row",  # times 1 / tokens: the batch's
    "second/loss_cispo.py": "a capped ratio that has a gradient",
    "second/metrics_abs.py": "the 99% quantile of D, not of |D|",
    "second/ratio_sequence.py": "the mean of a row's ratios, not exp of the mean",
    "second/rewards_overlong.py": "the excess in tokens, not over L_c",  # bounded by -1: the same for whole lengths
}
FIRST = {  # measured once, before any edit was added for them; names read by hand; the programs' commits are f00d47d, c8db15b and 426893d
    "unseen": {"commit": "75c6b39", "programs": 40, "named": 31, "unnamed": 9, "misnamed": 0},
    "fresh": {"commit": "9410d88", "programs": 20, "named": 16, "unnamed": 3, "misnamed": 1},
    "second": {"commit": "cb8f5f6", "programs": 20, "named": 16, "unnamed": 4, "misnamed": 0},
}
RECORD = proofs.ROOT / "results" / "judge" / "diagnosis.json"
LEAST = 0.9  # least share of named programs among those described by an edit or a pair of edits
BEFORE = {
    "policy_loss": {"commit": "424ec32", "programs": 31, "named": 25, "half_named": 1, "misnamed": 1, "unnamed": 4},
    "preference_loss": {"commit": "28358bf", "programs": 12, "named": 11, "unnamed": 1},
    "filtered_logprobs": {"commit": "28358bf", "programs": 5, "named": 5},
    "group_advantages": {"commit": "fcc4c77", "programs": 9, "named": 8, "unnamed": 1},
    "token_kl": {"commit": "fcc4c77", "programs": 5, "named": 5},
    "full_kl": {"commit": "fcc4c77", "programs": 2, "named": 2},
    "selective_log_softmax": {"commit": "fcc4c77", "programs": 4, "named": 4},
    "importance_ratio": {"commit": "1ff2ddf", "programs": 3, "named": 3},
}
"""What was said of the blind programs by the edits of these commits, before any was added for them; judged by hand."""


@dataclass(frozen=True, slots=True)
class Bug:
    """A wrong program and its expected diagnosis.

    Attributes:
        op: the wrong op.
        bug: its author's description.
        computes: part of the expected name; None: it has no name.
        where: part of the expected location if it has no name.
        says: words of any right name, alternatives between bars, in place of `computes`.
    """

    path: Path
    op: str
    bug: str
    computes: str | None
    where: str
    says: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Its folder and file."""
        return f"{self.path.parent.name}/{self.path.name}"

    @property
    def subject(self) -> Subject:
        """The file as a subject."""
        return replace(catalogue.from_file(str(self.path), None), name=self.name)

    def outcome(self, diagnoses: Sequence[DiagnosisRecord]) -> str:
        """Return the worst outcome of its ops: named, unnamed or misnamed."""
        outcomes = {self._outcome(outcome) for outcome in diagnoses}
        return next((outcome for outcome in ("misnamed", "unnamed", "named") if outcome in outcomes), "unnamed")

    def _outcome(self, diagnosis: DiagnosisRecord) -> str:
        if diagnosis.kind not in NAMED or diagnosis.kind == "lower precision":  # the second says what cannot be told
            return "unnamed"
        if not (self._says(diagnosis.computes) if self.says else (self.computes or "\0") in diagnosis.computes):
            return "misnamed"
        return "unnamed" if diagnosis.kind == "ambiguous" else "named"

    def _says(self, words: str) -> bool:
        """Whether a name says what the author of an unseen program asks for."""
        if RIGHT.get(self.name, "\0") in words:
            return True
        return all(any(word.lower() in words.lower() for word in alternatives.split("|")) for alternatives in self.says)

    def elsewhere(self, diagnoses: Sequence[DiagnosisRecord]) -> bool:
        """Whether the reported location is not the expected one."""
        return (
            self.computes is None
            and not self.says
            and any(self.where not in diagnosis.where for diagnosis in diagnoses)
        )


def bugs(folders: Sequence[Path], names: Sequence[str]) -> Iterator[Bug]:
    """Yield all or the named programs; their constants are read without running them."""
    paths = sorted(path for folder in folders for path in folder.glob("*_*.py"))
    known = {path: {path.stem, f"{path.parent.name}/{path.stem}"} for path in paths}
    if unknown := set(names).difference(*known.values()):
        raise SystemExit(f"no program is called {', '.join(sorted(unknown))}; see {', '.join(map(str, folders))}")
    for path in paths:
        if names and not known[path] & set(names):
            continue
        constants = _constants(path)
        (op,) = {constants["OP"]} if "OP" in constants else set(constants["OPS"])
        description = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        says, where = tuple(constants.get("SAYS", ())), constants.get("WHERE", "")
        yield Bug(path, op, constants.get("BUG", description), constants["COMPUTES"], where, says)


def _constants(path: Path) -> dict[str, Any]:
    constants: dict[str, Any] = {"COMPUTES": None}
    for statement in ast.parse(path.read_text(encoding="utf-8")).body:
        targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
        name = targets[0].id if isinstance(targets[0], ast.Name) else ""
        if name in {"OP", "BUG", "COMPUTES", "WHERE", "SAYS"}:
            constants[name] = ast.literal_eval(statement.value)  # type: ignore[attr-defined]
        if name == "OPS" and isinstance(statement.value, ast.Dict):  # type: ignore[attr-defined]
            constants[name] = [ast.literal_eval(key) for key in statement.value.keys if key]  # type: ignore[attr-defined]
    return constants


def cases_of(op: str, subject: Subject) -> list[PlannedCase]:
    """Return the cases of the definitions of an op."""
    gates = [gate for gate in load().gates.values() if op in {o.name for o in gate.ops} and not runs_a_model(gate)]
    planned = plan(gates, [subject], quick=False)
    return [item for item in planned if (item.case.level or item.gate.level) == "definition"]


def diagnosed(cases: Sequence[PlannedCase], options: Options) -> list[DiagnosisRecord]:
    """Judge the cases and diagnose wrong ops, like `gates check`."""
    diagnoser = Diagnoser(cases, options)
    with opened(options) as executor:
        executor.submit(list(cases))
        for judged in executor.judged():
            diagnoser.note(judged.verdict)
    return list(diagnoser.run())


def line(diagnosis: DiagnosisRecord) -> dict[str, Any]:
    """Return the record of one op."""
    numbers = {"rho": diagnosis.rho, "next_rho": diagnosis.next_rho}
    return {
        "kind": diagnosis.kind,
        "words": diagnosis.computes,
        "where": diagnosis.where,
        **{name: None if math.isnan(x) else float(f"{x:.3g}") for name, x in numbers.items()},
        "seconds": round(diagnosis.seconds, 1),
    }


def diagnose_all(programs: Sequence[Bug], jobs: int) -> dict[str, dict[str, Any]]:
    """Diagnose the programs, print each that is not named, and return the record."""
    record: dict[str, dict[str, Any]] = {}
    with Bar("programs", len(programs)) as bar:
        for bug in programs:
            diagnoses = diagnosed(cases_of(bug.op, bug.subject), Options(jobs=jobs))
            if not diagnoses:
                raise SystemExit(
                    f"{bug.name}: nothing is diagnosed; it must be a bug that a definition of {bug.op} calls wrong"
                )
            outcome = bug.outcome(diagnoses)
            bar.advance(bug.name)
            record[bug.name] = {
                "bug": bug.bug,
                "expected": " and ".join(bug.says) if bug.says else bug.computes,
                "outcome": outcome,
                "place_as_expected": not bug.elsewhere(diagnoses),
                "ops": {diagnosis.op: line(diagnosis) for diagnosis in diagnoses},
            }
            summary = "; ".join(
                f"{diagnosis.op}: {diagnosis.kind}: {diagnosis.computes or diagnosis.where}" for diagnosis in diagnoses
            )
            print(f"{outcome:8} {bug.name}: {bug.bug}\n         {summary}", flush=True)
    return record


def counts(record: dict[str, dict[str, Any]]) -> dict[str, dict[str, int]]:
    """Count the outcomes by folder, separately for programs without an expected name."""
    by_folder: dict[str, Counter[str]] = defaultdict(Counter)
    for name, program in record.items():
        kind = "" if program["expected"] is not None else ", no name expected"
        by_folder[f"{name.partition('/')[0]}{kind}"][program["outcome"]] += 1
    return {kind: dict(sorted(counter.items())) for kind, counter in sorted(by_folder.items())}


def seconds(record: dict[str, dict[str, Any]]) -> dict[str, list[float]]:
    """Return the median and the longest diagnosis of each op."""
    taken: dict[str, list[float]] = defaultdict(list)
    for program in record.values():
        for op, diagnosis in program["ops"].items():
            taken[op.partition("[")[0]].append(diagnosis["seconds"])
    return {op: [sorted(times)[len(times) // 2], max(times)] for op, times in sorted(taken.items())}


def problems(record: dict[str, dict[str, Any]]) -> list[str]:
    """Return the reasons why the proof fails."""
    failures = [f"{name} is misnamed" for name, program in record.items() if program["outcome"] == "misnamed"]
    failures += [f"{name} has another place" for name, program in record.items() if not program["place_as_expected"]]
    nameable = [program["outcome"] for program in record.values() if program["expected"] is not None]
    if nameable and nameable.count("named") < LEAST * len(nameable):
        failures.append(f"{nameable.count('named')} of {len(nameable)} are named, must be {LEAST:.0%}")
    return failures


def main() -> int:
    """Return 1 if the proof fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "names", nargs="*", help="programs such as loss_max_for_min or blind/loss_max_for_min; all by default"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--programs", type=Path, nargs="*", default=FOLDERS, help="their folders")
    options = parser.parse_args()
    began, whole = time.monotonic(), not options.names and tuple(options.programs) == FOLDERS
    record = diagnose_all(list(bugs(options.programs, options.names)), options.jobs)
    failed = problems(record)
    document: dict[str, Any] = {"counts": counts(record), "seconds_by_op": seconds(record), "programs": record}
    print(json.dumps(document["counts"], indent=1), *failed, sep="\n")
    if whole:
        document = {
            **document,
            "commit": proofs.revision(),
            "named_before_edits_were_added": {**BEFORE, **FIRST},
            "python": platform.python_version(),
            "seconds": round(time.monotonic() - began),
        }
        write_whole(RECORD, json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
