"""Apply small mutations to the NumPy baseline, one at a time, and search for inputs that reveal mutations no gate catches.

    .venv/bin/python tools/mutate_numpy_baseline.py                      # every module, 10,000 inputs of each op
    .venv/bin/python tools/mutate_numpy_baseline.py loss kl --inputs 500 # two modules, not recorded
    .venv/bin/python tools/mutate_numpy_baseline.py --record             # writes results/judge/inputs.json after each module
    .venv/bin/python tools/mutate_numpy_baseline.py --record --resume    # continues with modules that are not recorded yet
    .venv/bin/python tools/mutate_numpy_baseline.py --record --again     # after new cases: retries mutations that other inputs revealed

A mutation that fails a case of a gate is caught. For a survivor, the mutated and the original baseline are compared on
valid inputs outside the cases (gates/families/valid.py). If they differ by more than a textbook limit, the gates lack an input:
it becomes a case whose name starts with `found-`. Otherwise the mutation counts as equivalent, which only means that so
many inputs did not reveal it. Cases are judged in this process, each mutation in a fork.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import proofs
from mutated_baseline import (
    FOLDER,
    FOUND,
    MODULES,
    Answer,
    Sample,
    operations,
    ops_of,
    ordered,
    status,
    traced,
    tried,
)
from small_mutations import Mutation, mutations

from gates.families.generators import generators
from gates.model import Op
from gates.registry import load
from gates.results.atomic_write import write_whole
from gates.run import plan as planning
from gates.run.plan import Options, PlannedCase, runs_a_model
from gates.worker.process import Hello, Worker

GENERATORS = generators()
RECORD = proofs.ROOT / "results" / "judge" / "inputs.json"
INPUTS = 10_000  # valid inputs of each op
EVERY = 50  # mutations between two lines of progress
Declared = Mapping[str, Sequence[Op]]  # several ops share a name: with and without the entropy, with pieces


@dataclass(slots=True)
class Search:
    """The cases and inputs for the mutations of a module."""

    hello: Hello
    options: Options
    cases: Sequence[tuple[PlannedCase, frozenset[tuple[str, str]]]]
    samples: Sequence[Sample]
    declared: Declared

    def answers(self, module: str, chosen: Sequence[Mutation]) -> Iterator[tuple[Mutation, Answer]]:
        """Yield the result of each mutation on the cases and inputs that run its function."""
        for mutation in chosen:
            function = (module, mutation.function)
            cases = ordered(job for job, functions in self.cases if function in functions)
            samples = [sample for sample in self.samples if function in sample.functions]
            yield mutation, tried(mutation, module, cases, samples, self.declared, self.hello, self.options)


def of(module: str, inputs: int, *, quick: bool = False) -> Search:
    """Return the cases of the module's ops that the original passes, and `inputs` other inputs of each op."""
    subject = load().subjects["numpy"]
    served = Worker.start(subject, threads=1)
    hello = served.hello
    served.close()
    options, ops = Options(quick=quick), operations()
    asked = set(ops_of(module))
    gates = [gate for gate in load().gates.values() if not runs_a_model(gate)]
    declared: dict[str, list[Op]] = defaultdict(list)
    for gate in gates:
        for op in gate.ops:
            declared[op.name].append(op)
    planned = planning.plan([gate for gate in gates if asked & {op.name for op in gate.ops}], [subject], quick=quick)
    cases = []
    for job in planned:
        verdict, functions = traced(partial(status, job, ops, hello, options))
        if verdict == "correct":
            cases.append((job, functions))
    samples = [sample for op in GENERATORS if op in asked for sample in drawn(op, inputs)]
    return Search(hello, options, cases, samples, declared)


def drawn(op: str, count: int) -> Iterator[Sample]:
    """Yield inputs of an op with the original's outputs, without inputs that it refuses."""
    call = operations()[op]
    for number in range(count):
        levels, inputs = GENERATORS[op].draw(number)
        try:
            wanted, functions = traced(partial(call, **inputs))
        except (ValueError, NotImplementedError):
            continue
        yield Sample(op, number, levels, inputs, wanted, functions)


def searched(module: str, inputs: int, *, quick: bool = False) -> dict[str, Any]:
    """Return the record of one module, with progress on standard output."""
    began, at = time.monotonic(), proofs.revision()
    search = of(module, inputs, quick=quick)
    chosen = list(mutations((FOLDER / f"{module}.py").read_text()))
    listed = [line for line in tried_all(search, module, chosen) if line["verdict"] != "caught"]
    return {
        "commit": at,
        "cases": len(search.cases),
        "inputs_of_each_op": inputs,
        "valid_inputs": len(search.samples),
        "mutations": len(chosen),
        "caught": len(chosen) - len(listed),
        **counted(listed),
        "seconds": round(time.monotonic() - began),
        "survivors": listed,
    }


def again(module: str, known: Mapping[str, Any]) -> dict[str, Any]:
    """Return the record of a module after retrying the mutations that no case caught, since there may be new cases."""
    at, before = proofs.revision(), known["survivors"]
    open_ = {
        place_of(line) for line in before if line["verdict"] == "found"
    }  # two in one line may look alike: both are tried
    search = of(module, known["inputs_of_each_op"])
    chosen = [
        mutation
        for mutation in mutations((FOLDER / f"{module}.py").read_text())
        if (mutation.line, mutation.function, mutation.words) in open_
    ]
    tried_now = [line for line in tried_all(search, module, chosen) if line["verdict"] != "caught"]
    listed = [*(line for line in before if place_of(line) not in open_), *tried_now]
    listed.sort(key=lambda line: int(line["line"]))
    caught = known["mutations"] - len(listed)
    return {**known, "caught": caught, **counted(listed), "found_ones_again_at": at, "survivors": listed}


def place_of(line: Mapping[str, Any]) -> tuple[int, str, str]:
    """Return the identity of the mutation of a record line."""
    return line["line"], line["function"], line["change"]


def counted(lines: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Count the verdicts of the mutations that no earlier case caught."""
    counts = Counter(line["verdict"] for line in lines)
    return {verdict.replace(" ", "_"): counts[verdict] for verdict in ("new case", "found", "equivalent")}


def tried_all(search: Search, module: str, chosen: Sequence[Mutation]) -> Iterator[dict[str, Any]]:
    """Yield the record line of each mutation, and print those that no earlier case catches."""
    began, counts = time.monotonic(), Counter[str]()
    print(
        f"{module}: {len(chosen)} mutations, {len(search.cases)} cases, {len(search.samples)} inputs outside them",
        flush=True,
    )
    for number, (mutation, answer) in enumerate(search.answers(module, chosen), 1):
        new = answer.verdict == "caught" and answer.by.partition(" · ")[2].startswith(FOUND)
        verdict = "new case" if new else answer.verdict
        detail = (
            {"by": answer.by}
            if answer.by
            else {"inputs": answer.inputs, **({"where": answer.where} if answer.where else {})}
        )
        line = {
            "line": mutation.line,
            "function": mutation.function,
            "change": mutation.words,
            "verdict": verdict,
            **detail,
        }
        counts[verdict] += 1
        if verdict != "caught":
            print(
                f"{module}:{mutation.line} {mutation.function}: {mutation.words}: {verdict} {answer.by or answer.where or ''}",
                flush=True,
            )
        if number % EVERY == 0:
            print(
                f"{module}: {number} of {len(chosen)} tried, {dict(counts)} ({time.monotonic() - began:.0f} s)",
                flush=True,
            )
        yield line


def main() -> int:
    """Return 1 if a valid input reveals a mutation that no gate catches."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("modules", nargs="*", choices=[*MODULES, []], default=[])
    parser.add_argument("--inputs", type=int, default=INPUTS, help="of each op, outside the cases")
    parser.add_argument("--quick", action="store_true", help="with the quick cases only")
    parser.add_argument("--record", action="store_true", help="write results/judge/inputs.json after each module")
    parser.add_argument("--resume", action="store_true", help="leave out the modules that are recorded")
    parser.add_argument("--again", action="store_true", help="try the recorded mutations once more that no case caught")
    options = parser.parse_args()
    if options.record and options.quick:
        parser.error("--record is given with --quick, must be given with all cases")
    known: dict[str, Any] = json.loads(RECORD.read_text())["modules"] if RECORD.exists() else {}
    count = 0
    try:
        for module in options.modules or MODULES:
            if (options.resume and module in known) or (options.again and module not in known):
                continue
            known[module] = (
                again(module, known[module]) if options.again else searched(module, options.inputs, quick=options.quick)
            )
            count += known[module]["found"]
            if options.record:
                kept = {name: known[name] for name in MODULES if name in known}
                write_whole(RECORD, json.dumps({"modules": kept}, indent=1, ensure_ascii=False) + "\n")
    except KeyboardInterrupt:
        print("interrupted: the modules above are done; --resume goes on with the others", file=sys.stderr)
        return 130
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
