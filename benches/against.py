"""asv: rlkernels against its peers, as ratios of times from one interleaved run in each peer's own interpreter.

All rows are measured once, by the class's `setup_cache`; a benchmark looks its row up. A peer without an environment is
n/a, and so is what is not timed because it is wrong: `gates bench kernels` says which.
"""

import math
import os

from . import ratios, rows

QUICK = "GATES_BENCH_QUICK"  # set by `tools/bench.py --here`: the smallest shapes alone, few samples
LIMIT_S = 900.0
THREADS = 1  # as asv.conf.json gives everyone


def _rows():
    return rows.selected(quick=bool(os.environ.get(QUICK)))


class _Ratio:
    """The peer's time over ours; above 1 we are faster."""

    param_names = ("row",)
    unit = "times"
    timeout = LIMIT_S

    def setup_cache(self):
        """Measure every row of every peer; asv keeps what this returns for all classes."""
        found = ratios.measure(_rows(), threads=THREADS, quick=bool(os.environ.get(QUICK)))
        return {
            row.name: record.ratio.value if record.ratio else math.nan
            for row, record in zip(_rows(), found, strict=True)
        }

    setup_cache.timeout = LIMIT_S

    def track_ratio(self, measured, row):
        """Return the ratio, or NaN, which asv shows as n/a."""
        return measured.get(row, math.nan)


def _named(op):
    return "".join(word.capitalize() for word in op.split("_")) + "Ratio"


for _op in dict.fromkeys(row.op for row in rows.rows()):
    _names = [row.name for row in rows.selected(ops=(_op,))]
    globals()[_named(_op)] = type(_named(_op), (_Ratio,), {"params": (_names,), "__doc__": f"{_op}: {_Ratio.__doc__}"})
