"""What a call costs when there is next to nothing to compute: four values in, keywords at their defaults."""

import rlkernels

from . import candidates
from .versus.rows import overhead

CALLS = {row.shape: row for row in overhead.rows()}
TIMES = 10_000


@candidates.once
def prepared(call):
    """One sample of the call, its result verified."""
    candidates.load("rlkernels")
    row = CALLS[call]
    if not all(hasattr(rlkernels, name) for name in row.needs):
        raise NotImplementedError(f"rlkernels has no {', '.join(row.needs)}")
    side = row.ours()
    if failed := [item for item in side.verify(side.run()) if not item.holds]:
        raise AssertionError(f"{failed[0].quantity} is {failed[0].observed}, must be at most {failed[0].limit}")
    # As in the measurement against peers: a statement, so that no wrapper is timed with it.
    names = {**side.names, "turns": [None] * TIMES}
    exec(f"def calls():\n    for _ in turns:\n        {side.statement}", names)  # noqa: S102  our own statement
    return names["calls"]


class Overhead:
    """Time of ten thousand calls."""

    param_names = ("call",)
    params = (tuple(CALLS),)

    def setup(self, call):
        """Verify the result."""
        self.calls = prepared(call)

    def time_call(self, call):
        """All calls."""
        self.calls()
