"""One process of `gates bench compare`: time calls of one build of rlkernels and print their 10% quantiles as JSON.

Run by path as `python -P -s benches/probe.py SITE SECONDS EXTRA NAME...`. SITE is the folder that holds the build; EXTRA is a
slowdown to plant, 0 but in proofs; NAMEs are of calls.py. With SECONDS 0 each call is made EXTRA times, for counting
instructions, and nothing is timed.
"""

import json
import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
#: Bytes past a cache line where the arrays of a call begin: 4 KB of rewards take 1.34 to 1.54 µs, by where they lie.
PLACES = (0, 16, 32, 48)
LARGE = 1 << 20  # bytes from which an array is not copied: where it lies matters no more


def load(name):
    """Return a module of this folder, which is no package here."""
    sys.path.insert(0, str(HERE))
    try:
        return __import__(name)
    finally:
        sys.path.remove(str(HERE))


def placed(value, place):
    """Return an array's copy that begins so many bytes past a cache line; anything else, and large arrays, as they are."""
    if not isinstance(value, np.ndarray) or value.nbytes > LARGE:
        return value
    raw = np.empty(value.nbytes + 128, np.uint8)
    start = -raw.ctypes.data % 64 + place
    copy = raw[start : start + value.nbytes].view(value.dtype).reshape(value.shape)
    copy[...] = value
    return copy


def main(site, seconds, extra, *names):
    """Print `{name: seconds of a call}`."""
    sys.path.insert(0, site)
    import rlkernels

    calls = load("calls")
    timing = load("timing")
    found = {}
    for name in names:
        call = calls.CALLS[name]()
        function = getattr(rlkernels, call.op)
        if not float(seconds):
            for _ in range(int(float(extra))):
                function(**call.keywords)
            continue
        taken = []
        for place in PLACES:
            keywords = {key: placed(value, place) for key, value in call.keywords.items()}
            taken.append(timing.alone(lambda: function(**keywords), float(seconds) / len(PLACES), float(extra)))  # noqa: B023
        found[name] = sum(taken) / len(taken)
    json.dump({"profile": rlkernels.build_info()["profile"], "seconds": found}, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
