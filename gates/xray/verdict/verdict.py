"""The verdict on one quantity of an update."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gates.recorded.finding import Status


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on one quantity, in the grades of `gates judge`.

    Attributes:
        quantity: `policy_loss[grpo]`, `policy_loss` where the note names no algorithm, or `group_advantages`.
        status: its grade; "cannot tell": the update does not decide; "unsupported": there is no definition for it.
        sentence: what was compared, with the numbers.
        computes: the formula that was identified; empty where it is as asked.
        because: what the precision is.
        remedy: the note or the step that would tell, or the setting to note if another choice is meant.
        numbers: behind it, as JSON has them.
    """

    quantity: str
    status: Status
    sentence: str
    computes: str = ""
    because: str = ""
    remedy: str = ""
    numbers: Mapping[str, Any] = field(default_factory=dict)
