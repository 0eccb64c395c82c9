"""Recorded runs to make pages of, and a reader of what a page holds."""

from __future__ import annotations

import math
from html.parser import HTMLParser
from pathlib import Path

from runs_on_file import HOSTILE, header, verdict, write

from gates.model import Evidence, Verdict, Waived
from gates.results.calibration_records import CalibrationRecord, FalsePositiveRecord, NearestRecord
from gates.results.jsonl import Writer
from gates.results.records import SensitivityRecord, SubjectRecord, verdict_record

SEEN = HOSTILE.replace("\x1b", "\\u001b")  # how its control character is shown


class Elements(HTMLParser):
    """Every element's name and attributes, and the text inside each kind."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self._open = [""]
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in {"meta", "input", "br"}:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        while self._open.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        self.texts.append((self._open[-1], data))

    def text(self, tag: str) -> str:
        return "".join(data for kind, data in self.texts if kind == tag)


def mixed(folder: Path) -> list[Path]:
    """A check with one verdict of each status, and a proof with sensitivities and mutants."""
    waived = Waived("wrong", "known", "#12", "ada", "2027-01-01")
    check = [
        verdict(),
        verdict("wrong", case="other"),
        verdict("wrong", gate="loss.grpo", cause="departs"),
        verdict("error", gate="packing"),
        verdict("waived", gate="ratio", waived=waived),
        verdict("correct", gate="weights"),
        *(verdict("unsupported", gate=gate, subject="peer") for gate in ("kl.k1", "kl.k3")),
        verdict("skipped", subject="peer", gate="loss.grpo"),
    ]
    proof = [verdict(), verdict("wrong", mutant="kl.flipped"), verdict("correct", mutant="kl.lost")]
    write(folder / "check.jsonl", check, problems=["required, but skipped: peer"])
    noticed = {"kl.k1": [1e-10, 1e-6], "kl.k3": [1e-3, None], "loss.grpo": [None]}
    records = [
        SensitivityRecord(gate=gate, subject="mine", case=str(number), noticed=value)
        for gate, values in noticed.items()
        for number, value in enumerate(values)
    ]
    write(folder / "proof.jsonl", proof, verb="prove", also=records)
    return [folder / "check.jsonl", folder / "proof.jsonl"]


def hostile(folder: Path) -> Path:
    """A run in which every word of a subject tries to be markup."""
    evidence = Evidence(HOSTILE, float("inf"), "<=", 1.0, HOSTILE, HOSTILE)
    strange = Verdict(HOSTILE, HOSTILE, HOSTILE, 1, "wrong", "bound", HOSTILE, op=HOSTILE, evidence=(evidence,))
    hole = verdict("unsupported", reason=HOSTILE)
    path = folder / "<title><script>alert(2)<script>.jsonl"
    said = SubjectRecord(subject=HOSTILE, provides=[], versions={HOSTILE: HOSTILE})
    cells = [verdict_record(strange), hole]
    write(path, cells, problems=[HOSTILE], command=[HOSTILE], model=HOSTILE, also=[said])
    return path


def calibrated(folder: Path) -> Path:
    """Write a calibration of five gates over 20 seeds: one exact, two below their limit, two with false positives."""
    writer = Writer(folder / "calibrate.jsonl")
    names = list("abcde")
    writer.write(header(verb="calibrate", gates=names, subjects=["mine"], planned=120, seeds=20))

    def block(gate: str, first: int, share: float | None, refused: tuple[int, ...] = ()) -> None:
        seed = first + 3 if first == 0 else 15
        near = NearestRecord(quantity="kl", case="some", seed=seed, share=share, observed=1.0, limit=2.0)
        reason = {"status": "wrong", "cause": "bound", "reason": "kl is 5, must be <= 4"}
        writer.write(
            CalibrationRecord(
                gate=gate,
                subject="mine",
                backend="numpy",
                blas="own",
                cpu="a processor",
                full=False,
                commits=["cccccccc"],
                seeds={"judged": {"some": f"{first}-{first + 9}"}},
                retried={},
                false_positives=[FalsePositiveRecord(case="some", seed=s, **reason) for s in refused],
                nearest=[] if gate == "a" else [near],
            )
        )

    for gate, early, late in (("a", 0, 0), ("b", 0.3, 0.1), ("c", 0.2, 0.9), ("d", 1.7, None), ("e", math.nan, 0.1)):
        block(gate, 0, early, {"d": (4, 9), "e": (5,)}.get(gate, ()))
        block(gate, 10, late)
    writer.close()
    return folder / "calibrate.jsonl"
