"""The appendix of the conformance page: rare input and lost digits, over cases that several libraries have in common."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gates.report.conformance.words import ABSENT, rule, table_row
from gates.results.common_cases import Common

SIGNS = {"fragile": "△", "imprecise": "≈", "hardening": "▫"}


def appendix(common: Common) -> Iterator[str]:
    """Yield the section; nothing without a record."""
    if not common:
        return
    peers = sorted({peer for op in common.values() for peer in op.libraries})
    yield "## Rare input and lost digits"
    yield ""
    yield (
        "Of each op that two libraries or more have, only the cases that all of them were asked. △ fragile: NaN, infinity or a "
        "number far off on rare input that runs produce (equal rewards, rows without tokens, large ratios) · ≈ imprecise: digits "
        "lost beyond the library's own arithmetic · ▫ hardening: fails on input that no pipeline produces (NaN in padding, ±1000 "
        "nats), which costs no grade · *holds*: none of these, in all cases · *see above*: the matrix says it."
    )
    yield ""
    yield table_row(["op", "cases in common", *peers])
    yield rule(len(peers) + 2)
    for name, op in common.items():
        if any(op.libraries.values()):
            yield table_row([f"`{name}`", str(op.cases), *(_counts(op.libraries.get(peer)) for peer in peers)])
    yield ""
    held = [f"`{name}` ({op.cases})" for name, op in common.items() if not any(op.libraries.values())]
    if held:
        yield f"Ops whose common cases all libraries hold: {', '.join(held)}."
        yield ""


def _counts(counts: Mapping[str, int] | None) -> str:
    if counts is None:
        return ABSENT
    found = " ".join(f"{sign} {counts[kind]}" for kind, sign in SIGNS.items() if counts.get(kind))
    return found or ("see above" if counts else "holds")
