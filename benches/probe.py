"""One process of `gates bench compare`: time calls of one build of rlkernels and print their 10% quantiles as JSON.

Run by path as `python -I benches/probe.py SITE SECONDS EXTRA NAME...`. SITE is the folder that holds the build; EXTRA is a
slowdown to plant, 0 but in proofs; NAMEs are of calls.py. With SECONDS 0 each call is made EXTRA times, for counting
instructions, and nothing is timed.
"""

import json
import sys
from pathlib import Path

HERE = Path(__file__).parent


def load(name):
    """Return a module of this folder, which is no package here."""
    sys.path.insert(0, str(HERE))
    try:
        return __import__(name)
    finally:
        sys.path.remove(str(HERE))


def main(site, seconds, extra, *names):
    """Print `{name: seconds of a call}`."""
    sys.path.insert(0, site)
    import rlkernels

    calls = load("calls")
    timing = load("timing")
    found = {}
    for name in names:
        call = calls.CALLS[name]()
        function, keywords = getattr(rlkernels, call.op), call.keywords

        def run(function=function, keywords=keywords):
            return function(**keywords)

        if float(seconds):
            found[name] = timing.alone(run, float(seconds), float(extra))
        else:
            for _ in range(int(float(extra))):
                run()
    json.dump({"profile": rlkernels.build_info()["profile"], "seconds": found}, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
