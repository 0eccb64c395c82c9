"""What a public name of a library is to the judge: its status, whether it is in scope, and what its reason must say."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, Protocol

Status = Literal[
    "judged",
    "departs",
    "judged elsewhere",
    "convention",
    "needs a training step",
    "no definition yet",
    "not judged yet",
    "out of scope",
]
STATUSES: dict[Status, str] = {
    "judged": "an op asks it of this library",
    "departs": "a finding with a program says how it differs",
    "judged elsewhere": "the code of another library, or of another op, runs behind it, and is judged there",
    "convention": "any value is right, such as the size of a group",
    "needs a training step": "only an update of the library's own trainer shows it, and no case asks it yet",
    "no definition yet": "a quantity of training that docs/definitions.md does not define",
    "not judged yet": "docs/definitions.md defines it, and the adapter does not ask it yet",
    "out of scope": "no loss, advantage, sampler, log-prob, packing, training step or configuration of these shows it",
}
ASKED: tuple[Status, ...] = ("judged", "departs", "judged elsewhere")  # by an op or by a program
OUTSIDE: Status = "out of scope"
KINDS_OUTSIDE = (  # the only reasons for a name to be out of scope
    "base class or protocol",
    "control tasks",
    "data preparation",
    "deprecated alias",
    "distributed execution",
    "evaluation",
    "generation server",
    "generation: lengths, stops, beams, caches",
    "helper of the program",
    "layers of models",
    "loading of models",
    "logging",
    "machine, hub and files",
    "memory and speed",
    "names and registries",
    "order of the data",
    "other kinds of models",
    "refused, or switched off with a message",
    "rewards of texts",
    "tools of agents",
)
MOST_WORDS = 12
OP = r"\w+(\[[^\]]+\])?"
FORMS = {  # how a reason begins, so that it can be checked
    "judged elsewhere": (re.compile(rf"(?P<peer>[\w-]+): (?P<op>{OP})"), "PEER: OP"),
    "needs a training step": (
        re.compile(r"(?P<op>(training_step|resolve_config)\[\w+\])(: .+)?"),
        "training_step[TRAINER] or resolve_config[TRAINER], then `: ` and what",
    ),
    "not judged yet": (re.compile(rf"(?P<op>{OP}): .+"), "OP: why"),
}
SHORT = {*FORMS, "no definition yet"}  # the statuses whose reason has at most MOST_WORDS


class Row(Protocol):
    """A public name with its status."""

    @property
    def source(self) -> str:
        """Return the place in the package."""

    @property
    def name(self) -> str:
        """Return the name."""

    @property
    def status(self) -> str:
        """Return the status, empty where the name has no row."""


@dataclass(frozen=True, slots=True)
class Scope:
    """How many names of a library are in scope, how many of them are asked, and a digest of their list."""

    names: int
    asked: int
    digest: str

    def __str__(self) -> str:
        """Return the share: "judged 61 of 84 in scope"."""
        return f"judged {self.asked} of {self.names} in scope"


def scope(rows: Iterable[Row]) -> Scope:
    """Return the scope of a library's rows. A change of a status within the scope leaves its digest as it is."""
    inside = [row for row in rows if row.status != OUTSIDE]
    names = sorted({f"{row.source} {row.name}" for row in inside})
    digest = hashlib.sha256("\n".join(names).encode()).hexdigest()[:16]
    return Scope(len(inside), sum(row.status in ASKED for row in inside), digest)


def problem(status: Status, reason: str) -> str:
    """Return what is wrong with the reason of a status, empty if it is right."""
    if status == OUTSIDE and reason not in KINDS_OUTSIDE:
        return f"{reason!r} is no kind of what is out of scope; must be one of: {' · '.join(KINDS_OUTSIDE)}"
    if status in FORMS and not FORMS[status][0].fullmatch(reason):
        return f"the reason of {status!r} must be {FORMS[status][1]}; is {reason!r}"
    if status in SHORT and len(reason.split()) > MOST_WORDS:
        return f"{reason!r} has {len(reason.split())} words, must have at most {MOST_WORDS}"
    return ""


def named_op(status: str, reason: str) -> tuple[str, str]:
    """Return the peer and the op that a reason names; each is empty where the status names none."""
    match = FORMS[status][0].fullmatch(reason) if status in FORMS else None
    parts = match.groupdict() if match else {}
    return parts.get("peer", ""), parts.get("op", "")
