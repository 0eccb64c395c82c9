"""What `gates ops` says about an op's inputs is what subjects are called with."""

from __future__ import annotations

from typing import Any

import pytest

from gates.registry import load
from gates.run.execute import opened
from gates.run.plan import Options, plan
from gates.worker.process import Worker


def test_every_input_of_a_call_is_described(monkeypatch: pytest.MonkeyPatch) -> None:
    """Quick cases call each op with exactly the keywords that its table describes."""
    called: dict[str, set[str]] = {}
    provided: set[str] = set()
    described = {op.name: set(op.inputs) for gate in load().gates.values() for op in gate.ops}
    original = Worker.call

    def spy(self: Worker, op: str, inputs: Any, **rest: Any) -> Any:
        called.setdefault(op, set()).update(inputs)
        provided.update(self.hello.provides)
        return original(self, op, inputs, **rest)

    monkeypatch.setattr(Worker, "call", spy)
    subjects = [load().subjects[name] for name in ("numpy", "rlkernels", "reference")]
    with opened(Options(quick=True)) as executor:
        for subject in subjects:  # the fastest first; the others are asked for what it leaves unseen
            for planned in reversed(
                plan([*load().gates.values()], [subject], quick=True, proof=True)
            ):  # short ones first
                if any(called.get(op.name) != described[op.name] for op in planned.gate.ops):
                    executor.submit([planned])
                    list(executor.judged())
    called.pop("model_hash")
    assert provided >= set(described)
    assert called == described
