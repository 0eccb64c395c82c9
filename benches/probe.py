"""One process of `gates bench compare`: time calls of one build of rlkernels and print their 10% quantiles as JSON.

Run by path as `python -P -s benches/probe.py SITE SECONDS EXTRA NAME...`. SITE is the folder of the build; EXTRA is an
artificial slowdown, 0 except in proofs; NAMEs are in calls.py. With SECONDS 0 each call is made EXTRA times without timing,
for counting instructions.
"""

import json
import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
#: Offsets of arrays from a cache line in bytes: 4 KB of rewards take 1.34 to 1.54 µs, depending on the offset.
PLACES = (0, 16, 32, 48)
LARGE = 1 << 20  # bytes from which the offset does not matter and an array is not copied


def load(name):
    """Return a module of this folder, which is not a package here."""
    sys.path.insert(0, str(HERE))
    try:
        return __import__(name)
    finally:
        sys.path.remove(str(HERE))


def placed(value, offset):
    """Return a copy of an array that starts `offset` bytes past a cache line; large arrays and other values unchanged."""
    if not isinstance(value, np.ndarray) or value.nbytes > LARGE:
        return value
    raw = np.empty(value.nbytes + 128, np.uint8)
    start = -raw.ctypes.data % 64 + offset
    copy = raw[start : start + value.nbytes].view(value.dtype).reshape(value.shape)
    copy[...] = value
    return copy


def main(site, seconds, extra, *names):
    """Print `{name: seconds of a call}`."""
    sys.path.insert(0, site)
    import rlkernels

    calls = load("calls")
    timing = load("timing")
    quantiles = {}
    for name in names:
        call = calls.CALLS[name]()
        function = getattr(rlkernels, call.op)
        if not float(seconds):
            for _ in range(int(float(extra))):
                function(**call.keywords)
            continue
        taken = []
        for offset in PLACES:
            keywords = {key: placed(value, offset) for key, value in call.keywords.items()}
            taken.append(timing.alone(lambda: function(**keywords), float(seconds) / len(PLACES), float(extra)))  # noqa: B023
        quantiles[name] = sum(taken) / len(taken)
    json.dump({"profile": rlkernels.build_info()["profile"], "seconds": quantiles}, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
