"""Adapters are short and call the peer's own code for every answer."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from gates.registry import load
from gates.results import jsonl
from gates.run.plan import runs_a_model
from gates.subjects.peers import environments

ROOT = Path(__file__).resolve().parents[4]
ADAPTERS = {name: peer for name, peer in environments.peers().items() if peer.subject}
OFTEN = ("mlx-lm-lora",)  # it imports in two seconds; the others are asked by `make record`
TRACED = """
import functools, importlib.util, os, sys

os.environ["MLX_DISABLE_COMPILE"] = "1"  # what is compiled enters no Python

spec = importlib.util.spec_from_file_location("adapter", {adapter!r})
adapter = importlib.util.module_from_spec(spec)
sys.modules["adapter"] = adapter
spec.loader.exec_module(adapter)
FOLDER = {folder!r}


def traced(function):
    @functools.wraps(function)
    def call(**inputs):
        entered = []

        def note(frame, event, argument):
            if event == "call" and frame.f_code.co_filename.startswith(FOLDER):
                entered.append(frame.f_code.co_name)
            if event == "c_call" and str(getattr(argument, "__module__", "")).partition(".")[0] == {package!r}:
                entered.append(argument.__name__)

        sys.setprofile(note)
        try:
            answer = function(**inputs)
        finally:
            sys.setprofile(None)
        assert entered, "the answer was made without the library"
        return answer

    return call


OPS = {{name: traced(function) for name, function in adapter.OPS.items()}}
CONVENTIONS = adapter.CONVENTIONS
VERSIONS = adapter.VERSIONS
"""


def test_adapters_are_short() -> None:
    """Without timed calls the median is under 130 lines, since fake models and row layouts are shared."""
    texts = [peer.subject.read_text().partition("\ndef timed_")[0] for peer in ADAPTERS.values() if peer.subject]
    sizes = sorted(len(text.splitlines()) for text in texts)
    assert sizes[len(sizes) // 2] < 130


def one_gate_of_each_op() -> list[str]:
    """Return a gate with a quick case for each op, and for each algorithm of the policy loss."""
    gates: dict[str, str] = {}
    for gate in load().gates.values():
        if any(case.quick for case in gate.cases) and not runs_a_model(gate):
            gates.setdefault(gate.name or gate.ops[0].name, gate.id)
            gates.setdefault(gate.ops[0].name, gate.id)
    return sorted(set(gates.values()))


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in OFTEN else pytest.mark.long) for name in ADAPTERS]
)
def test_every_answer_calls_the_peer(name: str, tmp_path: Path) -> None:
    """An adapter with a copy of a formula fails, since its answer makes no call into the package."""
    environment = environments.environment(name)
    if not environment.ready:
        pytest.skip(f"no environment; `gates peers sync {name}` makes it")
    peer = ADAPTERS[name]
    (packages,) = environment.path.glob("lib/python*/site-packages")
    subject = tmp_path / "traced.py"
    top = peer.import_name.partition(".")[0]
    subject.write_text(TRACED.format(adapter=str(peer.subject), folder=str(packages / top), package=top))
    command = [sys.executable, "-m", "gates", "check", *one_gate_of_each_op(), "--quick", "--no-minimise"]
    done = subprocess.run(
        [*command, "--subject", str(subject), "--python", str(environment.python), "--out", str(tmp_path)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=300,
        check=False,
    )
    (file,) = tmp_path.glob("check-*.jsonl")
    judged = [verdict for verdict in jsonl.read(file).judged if verdict.status not in {"unsupported", "skipped"}]
    assert judged, done.stderr
    assert [v.reason for v in judged if "without the library" in v.reason] == []
    assert Counter(v.op for v in judged)
