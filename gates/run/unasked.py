"""Find what a subject provides and no case could judge: wrong code must not pass because nobody asked it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from gates.model import NOT_JUDGED, Verdict
from gates.provided import Provided
from gates.results.records import SubjectRecord, VerdictRecord

FEW = 2  # reasons that are quoted
TELLING = frozenset(  # arguments without which a formula is judged in part; others belong to a declared choice
    (
        "beta", "delta", "weights", "temperature", "entropy", "top_k", "top_p", "min_p", "repetition_penalty",
        "label_smoothing", "nll", "margin", "penalty", "bootstrap", "terminal",
    )
)  # fmt: skip


Key = tuple[str, str, str]  # subject, op, and preset; "" for all presets together


@dataclass(slots=True)
class Asked:
    """Counts, for each op that a subject provides and each preset that it declares, what was judged of it."""

    _judged: set[Key] = field(default_factory=set)
    _left: dict[Key, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    _given: dict[Key, set[str]] = field(default_factory=lambda: defaultdict(set))
    _declined: dict[Key, set[str]] = field(default_factory=lambda: defaultdict(set))
    _missed: dict[Key, dict[str, str]] = field(default_factory=lambda: defaultdict(dict))  # and the reason

    def add(self, verdict: Verdict | VerdictRecord) -> None:
        """Note a verdict; one at level hardening judges no formula."""
        op, _, inside = verdict.op.partition("[")
        preset = inside.rstrip("]").partition(",")[0]
        for key in {(verdict.subject, op, ""), (verdict.subject, op, preset)}:
            if verdict.status in NOT_JUDGED or verdict.status == "hardening":
                self._left[key][verdict.reason] += 1
            else:
                self._judged.add(key)
            if isinstance(verdict, Verdict):  # a record does not hold what a call gave
                self._note_arguments(key, verdict)

    def _note_arguments(self, key: Key, verdict: Verdict) -> None:
        if verdict.status not in NOT_JUDGED:
            self._given[key] |= verdict.gave
        elif verdict.cause == "lacking":
            self._declined[key] |= verdict.gave
        elif verdict.cause == "argument":
            self._missed[key] |= dict.fromkeys(verdict.gave, verdict.reason)

    def sentences(self, subject: str, provides: Mapping[str, Provided]) -> list[str]:
        """Return a sentence for each op that was not judged at all, and each declared preset of one that was."""
        texts = []
        for (name, op, preset), reasons in sorted(self._left.items()):
            if name != subject or op not in provides or (name, op, preset) in self._judged:
                continue
            if preset and ((name, op, "") not in self._judged or not _declared(preset, provides[op])):
                continue
            texts.append(f"{_named(op, preset)} of {subject} was not judged: {_quoted(reasons)}")
        for key in sorted(self._missed):
            name, op, preset = key
            if name != subject or op not in provides or key not in self._judged:
                continue
            if not preset or _declared(preset, provides[op]):
                texts += self._untried(key, provides[op].arguments or ())
        return texts

    def _untried(self, key: Key, arguments: tuple[str, ...]) -> list[str]:
        """Return a sentence on arguments that were given only in cases which another argument was missing for.

        Those that the subject itself declined are left out, and of a preset those that no preset was given.
        """
        subject, op, preset = key
        missed, never = self._missed[key], self._never(key, arguments)
        if preset:
            of_all = self._never((subject, op, ""), arguments)
            never = [name for name in never if name not in of_all]
        if not never:
            return []
        listed = " and ".join(f"`{name}`" for name in never)
        return [f"{_named(op, preset)} of {subject} was never given {listed}: {missed[never[0]]}"]

    def _never(self, key: Key, arguments: tuple[str, ...]) -> list[str]:
        tried = self._given[key] | self._declined[key]
        return [name for name in arguments if name in self._missed[key] and name in TELLING and name not in tried]


def provided(subjects: Iterable[SubjectRecord]) -> dict[str, dict[str, Provided]]:
    """Return the ops of recorded handshakes, by subject; a record does not hold what they declare."""
    return {record.subject: {op: Provided(op) for op in record.provides} for record in subjects}


def _named(op: str, preset: str) -> str:
    return f"{op}[{preset}]" if preset else op


def _declared(preset: str, provided: Provided) -> bool:
    return any(preset in choices for choices in provided.conventions.values())


def _quoted(reasons: Counter[str]) -> str:
    few = "; ".join(f"{reason} ({count})" for reason, count in reasons.most_common(FEW))
    more = len(reasons) - FEW
    return few + (f"; {more} other {'reason' if more == 1 else 'reasons'} (-v)" if more > 0 else "")
