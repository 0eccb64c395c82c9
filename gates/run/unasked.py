"""Find what a subject provides and no case could judge: wrong code must not pass because nobody asked it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from gates.model import NOT_JUDGED, Provided, Verdict
from gates.results.records import SubjectRecord, VerdictRecord

FEW = 2  # reasons that are quoted
TELLING = frozenset(  # arguments without which a formula is judged in part; others belong to a declared choice
    (
        "beta", "delta", "weights", "temperature", "entropy", "top_k", "top_p", "min_p", "repetition_penalty",
        "label_smoothing", "nll", "margin", "penalty", "bootstrap", "terminal",
    )
)  # fmt: skip


@dataclass(slots=True)
class Asked:
    """Counts, for each op that a subject provides and each preset that it declares, what was judged of it."""

    _judged: set[tuple[str, str, str]] = field(default_factory=set)  # subject, op, preset
    _left: dict[tuple[str, str, str], Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    _given: dict[tuple[str, str], set[str]] = field(default_factory=lambda: defaultdict(set))  # by subject and op
    _declined: dict[tuple[str, str], set[str]] = field(default_factory=lambda: defaultdict(set))
    _missed: dict[tuple[str, str], dict[str, str]] = field(default_factory=lambda: defaultdict(dict))  # and the reason

    def add(self, verdict: Verdict | VerdictRecord) -> None:
        """Note a verdict; one at level hardening judges no formula."""
        op, _, inside = verdict.op.partition("[")
        preset = inside.rstrip("]").partition(",")[0]
        for key in {(verdict.subject, op, ""), (verdict.subject, op, preset)}:
            if verdict.status in NOT_JUDGED or verdict.status == "hardening":
                self._left[key][verdict.reason] += 1
            else:
                self._judged.add(key)
        if not isinstance(verdict, Verdict):
            return  # a record does not hold what a call gave
        if verdict.status not in NOT_JUDGED:
            self._given[verdict.subject, op] |= verdict.gave
        elif verdict.cause == "lacking":
            self._declined[verdict.subject, op] |= verdict.gave
        elif verdict.cause == "argument":
            self._missed[verdict.subject, op] |= dict.fromkeys(verdict.gave, verdict.reason)

    def sentences(self, subject: str, provides: Mapping[str, Provided]) -> list[str]:
        """Return a sentence for each op that was not judged at all, and each declared preset of one that was."""
        texts = []
        for (name, op, preset), reasons in sorted(self._left.items()):
            if name != subject or op not in provides or (name, op, preset) in self._judged:
                continue
            if preset and ((name, op, "") not in self._judged or not _declared(preset, provides[op])):
                continue
            texts.append(f"{op}{f'[{preset}]' if preset else ''} of {subject} was not judged: {_quoted(reasons)}")
        for (name, op), missed in sorted(self._missed.items()):
            if name == subject and op in provides and (name, op, "") in self._judged:
                texts += self._untried(name, op, missed, provides[op].arguments or ())
        return texts

    def _untried(self, subject: str, op: str, missed: Mapping[str, str], arguments: tuple[str, ...]) -> list[str]:
        """Return a sentence on arguments that were given only in cases which another argument was missing for.

        Those that the subject itself declined are left out.
        """
        tried = self._given[subject, op] | self._declined[subject, op]
        never = [name for name in arguments if name in missed and name in TELLING and name not in tried]
        if not never:
            return []
        listed = " and ".join(f"`{name}`" for name in never)
        return [f"{op} of {subject} was never given {listed}: {missed[never[0]]}"]


def provided(subjects: Iterable[SubjectRecord]) -> dict[str, dict[str, Provided]]:
    """Return the ops of recorded handshakes, by subject; a record does not hold what they declare."""
    return {record.subject: {op: Provided(op) for op in record.provides} for record in subjects}


def _declared(preset: str, provided: Provided) -> bool:
    return any(preset in choices for choices in provided.conventions.values())


def _quoted(reasons: Counter[str]) -> str:
    few = "; ".join(f"{reason} ({count})" for reason, count in reasons.most_common(FEW))
    more = len(reasons) - FEW
    return few + (f"; {more} other {'reason' if more == 1 else 'reasons'} (-v)" if more > 0 else "")
