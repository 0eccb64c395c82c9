"""Right code is never called wrong: plain programs of every op, in NumPy, MLX and PyTorch, as their authors write them.

The programs stand beside this file. `make record` judges each at 1000 seeds (tools/honest_proof.py), a recorded run at 100 at
least; here it is one seed, and one program of each family and framework.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
FAMILIES = sorted({path.stem.split("_")[1] for path in HERE.glob("numpy_*.py")})
FRAMEWORKS = ("numpy", "mlx", "torch", "jax")


def proof(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the tool in a process of its own."""
    command = [sys.executable, str(ROOT / "tools" / "honest_proof.py"), "--jobs", "1", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, timeout=300)


@pytest.mark.slow
@pytest.mark.parametrize("families", [FAMILIES[::2], FAMILIES[1::2]], ids="-".join)
def test_no_program_is_called_wrong(families: list[str]) -> None:
    """Neither by a definition nor by a law; what a program lacks is left out, and something of each family is judged."""
    names = {family: [f"{framework}_{family}" for framework in FRAMEWORKS] for family in families}
    plainest = {
        family: [name for name in those if (HERE / f"{name}.py").exists()] or [family]
        for family, those in names.items()
    }
    done = proof(*(name for those in plainest.values() for name in those), "--seeds", "1")
    assert done.returncode == 0, done.stdout
    judged = [line.partition(":")[0] for line in done.stdout.splitlines() if "'correct': " in line]
    assert {name.split("_")[1] for name in judged} == set(families)


def test_a_wrong_program_is_called_wrong(tmp_path: Path) -> None:
    """Otherwise the test above would show nothing."""
    text = (HERE / "numpy_kl.py").read_text(encoding="utf-8")
    changed = text.replace("reference - policy", "policy - reference")
    assert changed != text
    (tmp_path / "numpy_kl.py").write_text(changed, encoding="utf-8")
    done = proof("kl", "--seeds", "1", "--programs", str(tmp_path))
    assert done.returncode == 1, done.stdout
    assert "'wrong': " in done.stdout


def test_the_record_has_every_program() -> None:
    """At a hundred seeds at least, and none was called wrong."""
    found = json.loads((ROOT / "results" / "judge" / "honest.json").read_text(encoding="utf-8"))
    assert found["seeds"] >= 100
    assert set(found["programs"]) == {path.name for path in HERE.glob("*_*.py") if path.name != Path(__file__).name}
    judged = {name: program for name, program in found["programs"].items() if "left_out" not in program}
    assert any(name.startswith("torch_") for name in judged)
    for name, program in judged.items():
        assert program.get("seeds", found["seeds"]) >= 100, name
        assert program["verdicts"].get("correct"), name
        assert not program["refused"], name
        assert not set(program["verdicts"]) & {"wrong", "error", "timeout"}, name
