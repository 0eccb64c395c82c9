"""asv: what a user waits for: imports, and `gates check --quick`."""

import subprocess
import sys
import time

MODULES = ("rlkernels", "gates.cli.verbs", "gates.run.session", "gates_reference.trainer.loop.run")
IMPORTS = 5
SUBJECTS = (
    "numpy",
    "rlkernels",
    "reference",
)  # Gates' own: asv runs this in an empty folder, which has nobody to judge
CHECK_LIMIT_S = 300.0


class Imports:
    """Seconds that an import takes in a new interpreter, over those of an interpreter alone."""

    param_names = ("module",)
    params = (MODULES,)
    unit = "s"

    def track_import(self, module):
        """Return the difference of the least seconds of several interpreters: contention only adds."""
        least = [min(_seconds(code) for _ in range(IMPORTS)) for code in (f"import {module}", "pass")]
        return max(0.0, least[0] - least[1])


class Check:
    """Seconds of `gates check --quick`: every subject of Gates' own."""

    unit = "s"
    timeout = CHECK_LIMIT_S

    def track_quick(self):
        """Return the seconds of one run, all of whose verdicts must be right.

        Raises:
            RuntimeError: it failed; the message is the end of its output.
        """
        start = time.perf_counter()
        line = [sys.executable, "-m", "gates", "check", "--quick"]
        line += [word for name in SUBJECTS for word in ("--subject", name)]
        done = subprocess.run(line, capture_output=True, text=True, timeout=CHECK_LIMIT_S, check=False)
        if done.returncode:
            raise RuntimeError((done.stdout + done.stderr)[-600:])
        return time.perf_counter() - start


def _seconds(code):
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)
    return time.perf_counter() - start
