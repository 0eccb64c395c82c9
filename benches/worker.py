"""Time rlkernels and one peer in the peer's own interpreter; a subject file that `gates.worker` serves (docs/protocol.md).

The judge (`benches/ratios.py`) calls `prepare`, verifies both results, then calls `sample`. Files of this checkout are loaded
by path, since neither Gates nor rlkernels is installed in that interpreter.
"""

from __future__ import annotations

import importlib.util
import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
#: of the judge: `adapter` (a file with a table TIMED), `site` (a folder that holds rlkernels), `threads`, `settings`.
SETTING = globals().get("SETTINGS", {})
FRAMEWORKS = ("torch", "mlx")


def _load(name, path, settings=None):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    module.__dict__["SETTINGS"] = dict(settings or {})
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _versions(adapter):
    """Return the adapter's versions, or the version of a plain formula's framework."""
    name = Path(adapter.__file__).stem
    plain = {name: version(name)} if name in FRAMEWORKS else {}
    return {**plain, **getattr(adapter, "VERSIONS", {})}


if SETTING:
    sys.path.append(SETTING["site"])  # last, since it only has rlkernels
    timing, workloads = (_load(f"gates_bench_{name}", HERE / f"{name}.py") for name in ("timing", "workloads"))
    theirs = _load("gates_bench_peer", SETTING["adapter"], SETTING["settings"])
    ours = _load("gates_bench_ours", HERE / "plain" / "ours.py")
    VERSIONS = _versions(theirs)
SIDES = {}  # "ours" and "theirs" of the row that was prepared last


def prepare(op, shape, dtype, conventions):
    """Build both sides of a row and run each once.

    Returns:
        The outputs of `ours` and `theirs` as arrays, both statements, the note and the build of rlkernels.

    Raises:
        NotImplementedError: this rlkernels lacks the op or the convention.
    """
    import rlkernels

    SIDES.clear()
    if not hasattr(rlkernels, op):
        raise NotImplementedError(f"this rlkernels has no {op}")
    inputs = {**workloads.operands(op, shape, dtype), **conventions}
    sides = {"ours": ours.TIMED[op](**inputs), "theirs": theirs.TIMED[op](**inputs)}
    _check_threads()
    outputs = {name: _outputs(name, side) for name, side in sides.items()}
    SIDES.update(sides)
    build = rlkernels.build_info()
    statements = {f"{name}_statement": side.statement for name, side in sides.items()}
    return {**outputs, **statements, "note": sides["theirs"].note, "isa": build["isa"], "threads": build["threads"]}


def _outputs(name, side):
    try:
        return side.answer(eval(side.statement, dict(side.names)))  # noqa: S307  a statement of this checkout
    except TypeError as error:
        if name == "ours" and "unexpected keyword" in str(error):
            raise NotImplementedError(f"this rlkernels: {error}") from None
        raise


def _check_threads():
    """Keep MLX on the CPU, and check that torch has the threads of OMP_NUM_THREADS.

    Setting the number again is no substitute: after `torch.set_num_threads(2)` torch 2.15 shares 128 elements between two
    threads, and under load each call waits two ticks of the scheduler (8 ms instead of 5 µs).
    """
    torch = sys.modules.get("torch")
    if torch and torch.get_num_threads() != SETTING["threads"]:
        raise RuntimeError(f"torch has {torch.get_num_threads()} threads, must have {SETTING['threads']}")
    if mlx := sys.modules.get("mlx.core"):
        mlx.set_default_device(mlx.cpu)


def sample(**sampling):
    """Time both sides of the prepared row in ABBA rounds with `timing.in_turns`.

    Returns:
        Seconds of a call of `ours` and `theirs` in each round, and the number of calls in a sample.
    """
    sides = [SIDES["ours"], SIDES["theirs"]]
    mine, peer = timing.in_turns(
        [side.statement for side in sides],
        [side.names for side in sides],
        **sampling,
    )
    return {
        "ours": np.asarray(mine.seconds),
        "theirs": np.asarray(peer.seconds),
        "our_calls": int(mine.calls),
        "their_calls": int(peer.calls),
    }


OPS = {"prepare": prepare, "sample": sample}
