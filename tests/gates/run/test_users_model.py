"""Cases under `--model`: their names, their layers and their limits are those of the model that is judged."""

from typing import Any

import numpy as np
import pytest

from gates.model import Case, Gate, Recipe, Verdict
from gates.registry import load
from gates.run.engines.node import Unit
from gates.run.execute import run
from gates.run.plan import Options, cases_of, plan, runs_a_model
from gates_reference import tiny, tiny_families

GATES = [gate for gate in load().gates.values() if runs_a_model(gate)]
FOLDER = "/models/Mistral-7B-4bit"


def _tiny(case: Case) -> dict[str, Any]:
    made = case.make(np.random.default_rng(0)).values()
    return next((dict(x.spec) for x in made if isinstance(x, Recipe) and x.kind == "model"), {})


def test_a_gate_runs_a_model_where_a_case_has_a_recipe() -> None:
    """The inputs of its ops tell so without a draw of any case."""
    for gate in load().gates.values():
        samples = (case.make(np.random.default_rng(0)) for case in gate.cases)
        assert runs_a_model(gate) == any(isinstance(x, Recipe) for inputs in samples for x in inputs.values()), gate.id


@pytest.mark.fast
@pytest.mark.parametrize("gate", GATES, ids=lambda gate: gate.id)
class TestNames:
    """No case is named after a model that is not there."""

    def test_the_tiny_models_settings_match_their_name(self, gate: Gate) -> None:
        """A case with a family, 4 bits or half precision of its own says which part of its name tells so."""
        for case in gate.cases:
            special = _tiny(case).keys() & {"family", "dtype"} or _tiny(case).get("bits") == 4
            assert not special or case.model, f"{gate.id} · {case.name}: give its Case `model`"
            assert case.model in case.name

    def test_names_are_of_the_given_model(self, gate: Gate) -> None:
        """Families of tiny models are gone, what is left differs in more than them, and no name stands twice."""
        names = [case.name for case in cases_of(gate, FOLDER)]
        assert len(set(names)) == len(names)
        assert not [name for name in names if any(family in name for family in tiny_families.FAMILIES)]
        assert cases_of(gate, None) == list(gate.cases)


@pytest.mark.fast
class TestPlan:
    """Cases that differ in the tiny model only are one."""

    def test_of_the_adapters(self) -> None:
        """KL, embeddings and DoRA stay beside the plain step; the quick case stands for the others."""
        cases = cases_of(load().gates["trainer.only-adapters-train"], FOLDER)
        label = "Mistral-7B-4bit"
        assert {case.name for case in cases} == {label, f"{label}-kl", f"{label}-embeddings", "dora"}
        assert [case.quick for case in cases if case.name == label] == [True]

    def test_a_node_finds_the_case(self) -> None:
        """The name that crosses to another machine is found there for the same model."""
        registry = load()
        subject, options = registry.subjects["reference"], Options(model=FOLDER)
        gate = registry.gates["scoring.log-probs.match-logits"]
        for planned in plan([gate], [subject], quick=False, model=FOLDER):
            assert Unit.of(planned, options, registry).find(registry).case == planned.case


def _judged(gate: str, case: str, **spec: Any) -> Verdict:
    registry, folder = load(), str(tiny.build(spec))
    cases = plan([registry.gates[gate]], [registry.subjects["reference"]], quick=False, model=folder)
    (verdict,) = [
        found.verdict
        for found in run([c for c in cases if c.case.name in {case, folder[-32:] + case}], Options(model=folder))
    ]
    return verdict


class TestVerdicts:
    """What the tiny Qwen3 has and another model lacks is not held against the subject."""

    @pytest.mark.parametrize("family", ["deepseek_v3", pytest.param("mamba", marks=pytest.mark.long)])
    def test_targets_are_layers_of_the_model(self, family: str) -> None:
        """Neither has a `q_proj`; another of their layers is named instead."""
        verdict = _judged("trainer.configuration-applies", "adapter.targets-acts", family=family)
        assert verdict.status == "correct", verdict.reason
        assert "proj" in " ".join(item.where for item in verdict.evidence)

    def test_limits_of_the_tiny_model_are_not_applied(self) -> None:
        verdict = _judged("trainer.no-spikes", "grpo", family="llama")
        assert verdict.status == "unsupported"
        assert "are for the tiny model of this case" in verdict.reason

    def test_the_precision_is_that_of_the_logits(self) -> None:
        """Of a model in float32 the question has no meaning; one in float16 is not measured as bfloat16."""
        gate = "scoring.half-logits.upcast"
        unasked = _judged(gate, "", family="llama")
        assert "float32" in unasked.reason
        assert unasked.status == "unsupported"
        found = _judged(gate, "", dtype="float16")
        assert found.status == "correct", found.reason
        assert any("no float16" in item.quantity for item in found.evidence)
