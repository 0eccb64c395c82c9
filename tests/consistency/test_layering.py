"""Who may import whom: the contracts of pyproject.toml, and the rules that contracts cannot express."""

import ast
import json
import subprocess
import sys
from functools import cache

import pytest
from importlinter.cli import lint_imports
from imports import ROOT, circles, external, graph, imports_of

from gates.registry import FAMILIES, FRAMEWORKS, load

pytestmark = pytest.mark.fast

CIRCLES: set[frozenset[str]] = set()  # known circles; remove those that no longer exist
JUDGE_NEEDS = {"numpy", "pydantic", "typer", "matplotlib", "rich", "filelock", "platformdirs", "psutil", "jinja2"} | {
    "markupsafe",
    "safetensors",
    "junitparser",
    "pydantic_core",
}
OPTIONAL = {
    "pytest": "gates.pytest",
    "_pytest": "gates.pytest",
    "ray": "gates.run.engines.cluster",
    "tokenizers": "gates.replay.run",
}
IN_WORKERS = ("patches", "trainer_patches", "mlx_trainer", "numpy_baseline", "peers", "rlkernels")


class TestContracts:
    """Imports point one way."""

    def test_every_contract_is_kept(self, capsys: pytest.CaptureFixture[str]) -> None:
        """[tool.importlinter] of pyproject.toml; `.venv/bin/lint-imports` prints the chain of a broken one."""
        code = lint_imports(config_filename=str(ROOT / "pyproject.toml"), no_cache=True, no_logo=True)
        assert code == 0, capsys.readouterr().out

    def test_no_modules_import_each_other(self) -> None:
        present = circles()
        assert not present - CIRCLES, [sorted(group) for group in present - CIRCLES]
        assert not CIRCLES - present, "these circles are gone: remove them from CIRCLES"

    def test_families_share_ops_and_helpers_only(self) -> None:
        """No family imports a module with gates or mutants of another one."""
        shared = {
            (family, imported)
            for family in FAMILIES
            for module in graph().find_descendants(f"gates.families.{family}")
            for imported in graph().find_modules_directly_imported_by(module)
            if imported.startswith("gates.families.")
            and imported.split(".")[2] != family
            and {"gates", "mutants"} & set(imported.split(".")[3:4])
        }
        assert not shared


class TestExternalPackages:
    """Third-party imports."""

    def test_the_oracle_needs_numpy_only(self) -> None:
        """The oracle has no framework's rounding and no library's conventions."""
        assert {name for name in external("gates_reference.oracle") if name not in sys.stdlib_module_names} == {"numpy"}

    def test_the_judge_needs_small_libraries_only(self) -> None:
        """Apart from modules for workers, gates imports the standard library and small libraries."""
        for package, modules in external("gates").items():
            judge = {module for module in modules if not set(module.split(".")) & set(IN_WORKERS)}
            if package in OPTIONAL:
                assert all(module.startswith(OPTIONAL[package]) for module in judge), (package, judge)
            elif package not in JUDGE_NEEDS | sys.stdlib_module_names:
                assert not judge, (package, judge)

    @pytest.mark.parametrize("name", ["worker.py", "frames.py", "declarations.py"])
    def test_the_worker_needs_numpy_only(self, name: str) -> None:
        """A worker runs these files by path in any interpreter that has NumPy."""
        for_type_checkers = {"gates", "gates.worker", "gates.worker.frames", "gates.worker.declarations"}
        imported = imports_of(ROOT / "gates" / "worker" / name) - for_type_checkers
        assert {name.partition(".")[0] for name in imported} <= sys.stdlib_module_names | {"numpy"}

    def test_a_peer_is_one_file(self) -> None:
        """An adapter imports nothing of Gates, which is not installed in the peer's interpreter."""
        folder = ROOT / "gates" / "subjects" / "peers"
        adapters = [
            file for file in folder.glob("*.py") if file.with_name(f"{file.stem.replace('_', '-')}.txt").is_file()
        ]
        for file in sorted([*adapters, *folder.glob("shared/*.py")]):
            assert not {name for name in imports_of(file) if name.partition(".")[0] == "gates"}, file


class TestProcess:
    """Modules loaded in the judge's process."""

    def run(self, code: str) -> str:
        """Run code in a fresh interpreter and return its output."""
        return subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
        ).stdout

    def test_no_framework_is_loaded_by_a_run(self) -> None:
        """After judging with a worker that runs MLX, sys.modules of the judge has no framework."""
        code = """
import json, sys
from gates.registry import load
from gates.run.plan import Options, plan
from gates.run.session import CheckRequest, check
registry = load()
cases = plan(registry.select(("trainer.adapters-off-is-base",)), [registry.subjects["reference"]], quick=True)
tally = check(CheckRequest(cases, Options()))
print(json.dumps([tally.counts["correct"], sorted(sys.modules)]))
"""
        passed, modules = json.loads(self.run(code))
        assert passed >= 1
        assert not {name.partition(".")[0] for name in modules} & {*FRAMEWORKS, "rlkernels"}
        assert not [name for name in modules if name.startswith("gates.families.") and "patches" in name]

    def test_the_command_line_imports_typer_only(self) -> None:
        """`import gates.cli.verbs` loads neither NumPy nor pydantic nor rich, so that `gates --help` is quick."""
        code = "import sys, json, gates.cli.verbs; print(json.dumps(sorted(sys.modules)))"
        modules = {name.partition(".")[0] for name in json.loads(self.run(code))}
        assert "typer" in modules
        assert not modules & {"numpy", "pydantic", "scipy", "filelock", "psutil", *FRAMEWORKS}

    @pytest.mark.alone
    def test_import_of_the_command_line_is_quick(self) -> None:
        """`import gates.cli.verbs` takes at most 0.3 s, the best of five."""
        code = "import time; t = time.perf_counter(); import gates.cli.verbs; print(time.perf_counter() - t)"
        assert min(float(self.run(code)) for _ in range(5)) <= 0.3


class TestMutants:
    """Mutants change the function that runs."""

    def test_no_patch_target_is_imported_by_name(self) -> None:
        """`from module import function` would keep the unmutated function, so targets are called through their module."""
        targets = {mutant.target.replace(":", ".") for mutant in load().mutants.values()}
        files = [*(ROOT / "reference").rglob("*.py"), *(ROOT / "gates" / "subjects").rglob("*.py")]
        for file in sorted(files):
            assert not imports_of(file) & targets, file

    def test_every_target_and_patch_exists(self) -> None:
        """Each mutant names a function, method or constant of the module, and a patch."""
        for mutant in load().mutants.values():
            for name in (mutant.target, mutant.patch):
                module, _, qualname = name.partition(":")
                assert qualname in _defined(module), f"{mutant.name}: {name} does not exist"


@cache
def _defined(module: str) -> set[str]:
    """Return functions, methods and assigned names of a module without importing it, since it may need a framework."""
    path = (ROOT / "reference" if module.startswith("gates_reference.") else ROOT) / module.replace(".", "/")
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    names: set[str] = set()
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.FunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{method.name}" for method in node.body if isinstance(method, ast.FunctionDef)}
        elif isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return names
