"""Calls of ops that the recorder of `gates xray` watches, each in a worker of its own that ends with its call."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import numpy as np

from gates.model import Outcome, Recipe, Wire


class Recorder(Protocol):
    """A worker whose process imported the recorder first."""

    @property
    def patched_calls(self) -> int:
        """How often a mutant's patch was called."""
        ...

    def call(self, op: str, inputs: Mapping[str, Wire | Recipe], *, limit_s: float, remedy: str) -> Outcome:
        """Run one op."""
        ...

    def close(self) -> None:
        """End the worker."""
        ...


@dataclass(slots=True)
class RecordedCalls:
    """The recorded calls of one subject.

    Attributes:
        start: starts another worker of the subject, under the recorder with these options.
        during: that worker, during its call.
        patched_calls: calls of a mutant's patch in all such workers.
    """

    start: Callable[[Mapping[str, Wire]], Recorder]
    during: Recorder | None = None
    patched_calls: int = 0

    def call(
        self,
        op: str,
        inputs: Mapping[str, Wire | Recipe],
        *,
        limit_s: float,
        remedy: str,
        wanted: Callable[[], bool],
    ) -> Outcome:
        """Run one op; its value has the files of the recording too, by name.

        Args:
            op: its name.
            inputs: its arguments but for `folder`, which is a scratch folder.
            limit_s: the seconds in which it must answer.
            remedy: what sets another limit, for the message of a timeout.
            wanted: whether the call still counts: false once the subject is closed, as while the worker starts.
        """
        with tempfile.TemporaryDirectory(prefix="gates-") as scratch:
            folder = Path(scratch, "recording")
            self.during = self.start({"folder": str(folder), "updates": inputs["updates"]})
            try:
                if not wanted():
                    self.during.close()
                outcome = self.during.call(op, {**inputs, "folder": scratch}, limit_s=limit_s, remedy=remedy)
                self.patched_calls += self.during.patched_calls
            finally:
                self.during.close()
            if outcome.kind != "value":
                return outcome
            return replace(outcome, value={**outcome.value, "recording": _files(folder)})

    def close(self) -> None:
        """End the worker of a call that another thread is in."""
        if self.during is not None:
            self.during.close()


def _files(folder: Path) -> dict[str, Wire]:
    """Return the bytes of each file below a folder."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): np.frombuffer(path.read_bytes(), np.uint8) for path in files}
