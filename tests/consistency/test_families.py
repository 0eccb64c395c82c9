"""The families of gates: folders, prefixes, mutants with their patches, and the planned ops of shipped subjects."""

import ast
from functools import cache
from pathlib import Path

import pytest

from gates import registry
from gates.model import Gate, Mutant
from gates.registry import FAMILIES, load
from gates.run.plan import runs_a_model
from gates.subjects import catalogue
from gates.subjects.mlx_trainer import subject as trainer
from gates.subjects.numpy_baseline import subject as baseline

pytestmark = pytest.mark.fast

ROOT = Path(registry.__file__).parents[1]
FOLDER = ROOT / "gates" / "families"
OF_RATIO = ("weights", "statistics")  # gate id prefixes that differ from the folder for historical reasons


@cache
def functions(module: str) -> frozenset[str]:
    """Return the names that a module defines, without importing it, since patches import frameworks."""
    file = (ROOT / "reference" if module.startswith("gates_reference.") else ROOT) / f"{module.replace('.', '/')}.py"
    if not file.exists():
        return frozenset()
    names: set[str] = set()
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.ImportFrom):
            names |= {alias.asname or alias.name for alias in node.names}
    return frozenset(names)


class TestQuickCases:
    """Cases of `gates check --quick` and of proofs."""

    def test_a_gate_that_runs_a_model_has_one_quick_case_at_most(self) -> None:
        """A quick check must end within seconds; proofs also use the cases of `proof`."""
        several = [gate for gate in load().gates.values() if sum(case.quick for case in gate.cases) > 1]
        assert len(several) >= 20
        assert not [gate.id for gate in several if runs_a_model(gate)], "mark all but one of its cases `proof`"

    def test_each_gate_can_be_proved(self) -> None:
        bare = [gate.id for gate in load().gates.values() if not any(case.quick or case.proof for case in gate.cases)]
        assert not bare


class TestFolders:
    """Layout of the families."""

    def test_every_family_is_a_folder_and_every_folder_a_family(self) -> None:
        folders = {file.parent.name for file in FOLDER.glob("*/__init__.py")}
        assert set(FAMILIES) == folders, "edit FAMILIES of gates/registry.py"

    @pytest.mark.parametrize("family", FAMILIES)
    def test_a_family_has_ops_gates_mutants_and_patches(self, family: str) -> None:
        for part in ("op", "gates", "mutants", "patches"):
            path = FOLDER / family / part
            assert path.with_suffix(".py").exists() or path.is_dir(), f"gates/families/{family}/{part}.py is missing"

    @pytest.mark.parametrize("gate", load().gates.values(), ids=lambda gate: gate.id)
    def test_a_gate_s_id_names_its_folder(self, gate: Gate) -> None:
        """The check is in the family of the id's first part."""
        prefix = gate.id.partition(".")[0]
        family = "ratio" if prefix in OF_RATIO else prefix
        own = gate.check.__module__.split(".")[2]
        assert own == family, f"{gate.id} is in gates/families/{own}, must be in gates/families/{family}"


class TestMutants:
    """References of mutants."""

    @pytest.mark.parametrize("mutant", load().mutants.values(), ids=lambda mutant: mutant.name)
    def test_a_mutant_s_patch_exists(self, mutant: Mutant) -> None:
        module, _, function = mutant.patch.partition(":")
        assert function in functions(module), f"edit {module.replace('.', '/')}.py: {mutant.name} wants {function!r}"

    @pytest.mark.parametrize("mutant", load().mutants.values(), ids=lambda mutant: mutant.name)
    def test_a_mutant_s_target_exists(self, mutant: Mutant) -> None:
        module, _, function = mutant.target.partition(":")
        named = function.partition(".")[0]
        assert named in functions(module), f"edit {module.replace('.', '/')}.py or the target of {mutant.name}"

    def test_every_patch_is_a_mutant_s(self) -> None:
        """A public patch that no mutant or other patch uses is dead code."""
        texts = {file: file.read_text() for file in FOLDER.rglob("*patches*/*.py")}
        texts |= {file: file.read_text() for file in FOLDER.glob("*/*patches.py")}
        used = {mutant.patch.partition(":")[2] for mutant in load().mutants.values()}
        for file, text in texts.items():
            module = ".".join(file.relative_to(ROOT).with_suffix("").parts)
            for name in functions(module) - used:
                if name.startswith("_") or name[0].isupper() or f"def {name}(" not in text:
                    continue
                others = sum(other.count(name) for other in texts.values())
                assert others > 1, f"edit {file.relative_to(ROOT)}: no mutant names {name!r}"


class TestPlans:
    """Shipped subjects are planned for exactly their ops."""

    def test_the_trainer_s_ops(self) -> None:
        """gates.subjects.catalogue lists the trainer's ops; the only other one is the hash of a model."""
        assert set(catalogue.TRAINER) == set(trainer.OPS) - {"model_hash"}, (
            "edit TRAINER of gates/subjects/catalogue.py"
        )

    def test_the_numpy_baseline_s_ops(self) -> None:
        assert set(catalogue.SHIPPED["numpy"]) == set(baseline.OPS), "edit SHIPPED of gates/subjects/catalogue.py"
