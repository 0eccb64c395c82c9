"""Who may import whom, what the judge's process holds, and how seams are called."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gates.registry import load
from gates.run.execute import opened
from gates.run.plan import Options, plan
from gates.worker.process import Worker

ROOT = Path(__file__).resolve().parents[2]
FRAMEWORKS = {"mlx", "mlx_lm", "torch", "jax", "tensorflow", "transformers"}
SMALL = {
    "numpy",
    "pydantic",
    "typer",
    "matplotlib",
    "rich",
    "filelock",
    "platformdirs",
    "psutil",
    "jinja2",
    "markupsafe",
}
STDLIB = set(sys.stdlib_module_names)
FORBIDDEN: dict[str, set[str]] = {
    "reference/oracle": {"gates", "rlkernels", "reference.trainer", "reference.tiny", "benches", *FRAMEWORKS},
    "reference": {"gates", "benches"},
    "gates/checks": {
        "gates.subjects",
        "gates.mutants",
        "reference.trainer",
        "reference.tiny",
        "rlkernels",
        *FRAMEWORKS,
    },
    "gates": {"benches", "reference.trainer", "reference.tiny"},
}
TRAINER_VERBS = {"train.py", "generate.py", "smoke.py", "memory.py", "evaluate.py"}
"""Verbs of gates/cli that are the trainer's: they judge nothing, and import it when they are called."""


def imports(file: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def python_files(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


class TestImports:
    """The import rules of the house."""

    @pytest.mark.parametrize("folder", FORBIDDEN)
    def test_no_folder_imports_what_it_must_not_see(self, folder: str) -> None:
        """Oracle, reference, checks and judge keep to their own sides."""
        for file in python_files(folder):
            if folder == "gates" and {"subjects", "patches"} & set(file.parts):
                continue
            if folder == "gates" and file.parent.name == "cli" and file.name in TRAINER_VERBS:
                continue
            for name in imports(file):
                assert not any(name == bad or name.startswith(f"{bad}.") for bad in FORBIDDEN[folder]), (file, name)

    def test_the_oracle_needs_numpy_only(self) -> None:
        """The oracle imports the standard library, NumPy and itself."""
        for file in python_files("reference/oracle"):
            for name in imports(file):
                top = name.partition(".")[0]
                assert top in STDLIB | {"numpy"} or name == "reference" or name.startswith("reference.oracle"), (
                    file,
                    name,
                )

    def test_the_judge_needs_small_libraries_only(self) -> None:
        """Outside subjects and patches, gates imports the standard library, small libraries, the oracle and itself."""
        for file in python_files("gates"):
            if ("subjects" in file.parts and file.name != "catalogue.py") or "patches" in file.parts:
                continue
            small = SMALL | ({"pytest"} if file.name.startswith("pytest_") else set())  # its plugin
            small = small | ({"ray"} if file.parts[-2:] == ("engines", "cluster.py") else set())  # the extra
            for name in imports(file):
                top = name.partition(".")[0]
                assert top in STDLIB | small | {"gates", "reference", "__future__"}, (file, name)

    @pytest.mark.parametrize("name", ["numpy", "rlkernels", "reference", "mlxrl"])
    def test_a_subject_imports_nothing_of_the_judge(self, name: str) -> None:
        """A subject is its own file, and where that would be too long its siblings named after it; never the judge.

        Siblings need Gates in the subject's interpreter, so only one that runs in the judge's own may have some.
        """
        files = sorted((ROOT / "gates" / "subjects").glob(f"{name}*.py"))
        assert len(files) == 1 or load().subjects[name].python is None
        for file in files:
            ours = {found for found in imports(file) if found == "gates" or found.startswith("gates.")}
            strangers = {x for x in ours if x != "gates.subjects" and not x.startswith(f"gates.subjects.{name}_")}
            assert not strangers, (file, strangers)

    def test_the_worker_is_standard_library_and_numpy(self) -> None:
        """gates/worker/worker.py, and the frames that it loads by path, run in any interpreter that has NumPy."""
        beside = {"gates", "gates.worker.frames"}  # what type checkers see
        for file in ("worker.py", "frames.py"):
            found = imports(ROOT / "gates" / file) - beside
            assert all(name.partition(".")[0] in STDLIB | {"numpy"} for name in found), found


class TestProcess:
    """What the judge's own process loads."""

    def run(self, code: str) -> str:
        """Run code in a fresh interpreter and return what it printed."""
        return subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
        ).stdout

    def test_no_framework_is_loaded_by_a_run(self) -> None:
        """After judging with a worker that runs MLX, sys.modules of the judge has no framework."""
        code = """
import json, sys
from pathlib import Path
from typing import Any
from gates.run import session
from gates.registry import load
from gates.run.plan import Options, plan
registry = load()
cells = plan(registry.select(("trainer.adapters-off-is-base",)), [registry.subjects["reference"]], quick=True)
tally = session.check(cells, Options(), None, (), lambda verdict: None)
print(json.dumps([tally.counts["pass"], sorted(name for name in sys.modules)]))
"""
        passed, modules = json.loads(self.run(code))
        assert passed >= 1
        assert not {name.partition(".")[0] for name in modules} & (FRAMEWORKS | {"rlkernels"})

    def test_the_command_line_imports_typer_only(self) -> None:
        """`import gates.cli` loads neither NumPy nor pydantic nor rich, and so is quick."""
        code = "import sys, json, gates.cli; print(json.dumps(sorted(sys.modules)))"
        modules = {name.partition(".")[0] for name in json.loads(self.run(code))}
        assert "typer" in modules
        assert not modules & {"numpy", "pydantic", "scipy", "filelock", "psutil", *FRAMEWORKS}

    @pytest.mark.alone
    def test_import_of_the_command_line_is_quick(self) -> None:
        """`import gates.cli` takes at most 0.3 s, the best of five."""
        code = "import time; t = time.perf_counter(); import gates.cli; print(time.perf_counter() - t)"
        assert min(float(self.run(code)) for _ in range(5)) <= 0.3


class TestOps:
    """What is written about an op is what subjects are called with."""

    def test_every_input_of_a_call_is_described(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Quick cases call each op with exactly the keywords that its table describes."""
        called: dict[str, set[str]] = {}
        provided: set[str] = set()
        described = {op.name: set(op.inputs) for gate in load().gates.values() for op in gate.ops}
        original = Worker.call

        def spy(self: Worker, op: str, inputs: Any, **rest: Any) -> Any:
            called.setdefault(op, set()).update(inputs)
            provided.update(self.hello.provides)
            return original(self, op, inputs, **rest)

        monkeypatch.setattr(Worker, "call", spy)
        subjects = [load().subjects[name] for name in ("numpy", "rlkernels", "reference")]
        options = Options(jobs=2, quick=True)
        with opened(options) as executor:
            for gate in load().gates.values():
                for job in plan([gate], subjects, quick=True):
                    if all(called.get(op.name) == described[op.name] for op in gate.ops):
                        break  # shown already: not again
                    executor.submit([job])
                    list(executor.judged())
        called.pop("model_hash")
        assert provided >= set(described)
        assert called == described


class TestSeams:
    """Mutants reach the function that runs."""

    def test_no_seam_is_imported_by_name(self) -> None:
        """A function that a mutant patches is called through its module everywhere, never from-imported."""
        seams = {m.target for m in load().mutants.values()}
        names = {target.replace(":", ".") for target in seams}
        for file in (*python_files("reference"), *python_files("gates/subjects")):
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.ImportFrom) and node.module:
                    taken = {f"{node.module}.{alias.name}" for alias in node.names}
                    assert not taken & names, (file, taken & names)

    def test_every_seam_and_patch_exists(self) -> None:
        """Each mutant names a function that is there, and a patch that is there."""
        for mutant in load().mutants.values():
            for reference in (mutant.target, mutant.patch):
                module, _, name = reference.partition(":")
                tree = ast.parse((ROOT / (module.replace(".", "/") + ".py")).read_text())
                defined = {n.name for n in tree.body if isinstance(n, ast.FunctionDef)}
                defined |= {
                    f"{c.name}.{n.name}"
                    for c in tree.body
                    if isinstance(c, ast.ClassDef)
                    for n in c.body
                    if isinstance(n, ast.FunctionDef)
                }
                defined |= {
                    t.id for n in tree.body if isinstance(n, ast.Assign) for t in n.targets if isinstance(t, ast.Name)
                }
                assert name in defined, reference
