"""Say at the end of `gates check` what each wrong op computes instead, and record it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from gates.model import Verdict
from gates.report.progress import Elapsed, console
from gates.results.escape import one_line
from gates.results.jsonl import Writer
from gates.results.records import DiagnosisRecord
from gates.run.differing import differing
from gates.run.plan import Options, PlannedCase


@dataclass(slots=True)
class WrongOps:
    """The verdicts of one run on definitions that do not hold, everywhere or on rare input, and their diagnoses."""

    cases: Sequence[PlannedCase]
    options: Options
    writer: Writer
    silent: bool
    rare: bool = True  # whether ops are diagnosed that are right but on rare input
    verdicts: list[Verdict] = field(default_factory=list)
    records: list[DiagnosisRecord] = field(default_factory=list)

    def watching(self, show: Callable[[Verdict], None]) -> Callable[[Verdict], None]:
        """Return a verdict callback that notes the verdict and calls `show`."""

        def on_verdict(verdict: Verdict) -> None:
            self.note([verdict])
            show(verdict)

        return on_verdict

    def note(self, verdicts: Iterable[Verdict]) -> None:
        """Keep the verdicts that a definition does not hold, or not on rare input."""
        kept = {("wrong", "definition"), *([("fragile", "robustness")] if self.rare else [])}
        self.verdicts += [verdict for verdict in verdicts if (verdict.status, verdict.level) in kept]

    def record(self, all_judged: Callable[[], None]) -> frozenset[tuple[str, str]]:
        """Diagnose every wrong op and write a line for each; Ctrl-C ends the search and keeps the lines so far.

        Return subjects and ops that make another known choice.
        """
        done = {(record.subject, record.op) for record in self.records}
        left = [verdict for verdict in self.verdicts if (verdict.subject, verdict.op) not in done]
        if not left:
            return differing(self.records)
        from gates.diagnosis.collect import Diagnoser

        diagnoser = Diagnoser(self.cases, self.options)
        for verdict in left:
            diagnoser.note(verdict)
        all_judged()
        with Elapsed(console(stderr=True), wanted=not self.silent) as elapsed:
            elapsed.start("what the wrong ops compute")
            try:
                for record in diagnoser.run():
                    self.records.append(record)
                    self.writer.write(record)
                    elapsed.now(one_line(f"what the wrong ops compute: {record.subject} · {record.op}"))
            except KeyboardInterrupt:
                pass
        return differing(self.records)
