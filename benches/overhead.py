"""What a call costs when there is next to nothing to compute: four values in, keywords at their defaults."""

import rlkernels

from . import candidates
from .versus.rows import overhead

CALLS = {row.shape: row for row in overhead.rows()}


class Overhead:
    """Time of one call."""

    param_names = ("call",)
    params = (tuple(CALLS),)

    def setup(self, call):
        """Verify the result."""
        candidates.load("rlkernels")
        row = CALLS[call]
        if not all(hasattr(rlkernels, name) for name in row.needs):
            raise NotImplementedError(f"rlkernels has no {', '.join(row.needs)}")
        side = row.ours()
        if failed := [item for item in side.verify(side.run()) if not item.holds]:
            raise AssertionError(f"{failed[0].quantity} is {failed[0].observed}, must be at most {failed[0].limit}")
        # As in the measurement against peers: a statement, so that no wrapper is timed with it.
        names = dict(side.names)
        exec(f"def call():\n    {side.statement}", names)  # noqa: S102  our own statement
        self.call = names["call"]

    def time_call(self, call):
        """One call."""
        self.call()
