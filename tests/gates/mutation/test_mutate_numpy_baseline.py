"""A short search for inputs that the gates lack: one module, a few mutations, few inputs."""

from __future__ import annotations

import ast
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "tools"))

import mutate_numpy_baseline as tool
from mutated_baseline import FOLDER, FOUND, differs, importers, in_fork, operations, ordered
from small_mutations import Mutation, mutations

from gates.registry import load
from gates.run.plan import plan

MODULE = "kl"
EQUIVALENT = "no over: np.errstate(over='ignore', invalid='ignore')"  # only suppresses a warning


@pytest.fixture(scope="module", autouse=True)
def _unmutated() -> Iterator[None]:
    """Restore the baseline's modules, which the tool rebuilds."""
    before = {name: module for name, module in sys.modules.items() if name.startswith("gates.subjects.numpy_baseline")}
    package = sys.modules["gates.subjects.numpy_baseline"]
    yield
    sys.modules.update(before)
    for name, module in before.items():
        if name != package.__name__:
            setattr(package, name.rpartition(".")[2], module)


@pytest.fixture(scope="module")
def search() -> tool.Search:
    """Search the quick cases of the module's ops and the first other inputs."""
    return tool.of(MODULE, 400, quick=True)


@pytest.fixture(scope="module")
def all_mutations() -> list[Mutation]:
    """Return all mutations of the module."""
    return list(mutations((FOLDER / f"{MODULE}.py").read_text()))


class TestOneMutation:
    """The result of one mutation."""

    def test_cases_catch_most_mutations(self, search: tool.Search, all_mutations: list[Mutation]) -> None:
        """Cases catch most of eight mutations and are named; no other input reveals one."""
        chosen = [all_mutations[int(k)] for k in np.random.default_rng(1).choice(len(all_mutations), 8, replace=False)]
        answers = [answer for _, answer in search.answers(MODULE, chosen)]
        assert all(answer.verdict in {"caught", "equivalent"} for answer in answers)
        caught = [answer.by for answer in answers if answer.verdict == "caught"]
        assert len(caught) >= 5
        assert all(by.startswith(("kl.", "does not ")) for by in caught)

    def test_without_cases_other_inputs_reveal_it(self, search: tool.Search, all_mutations: list[Mutation]) -> None:
        """0.75 d² for k2: the first revealing input is named by its op, number and choices."""
        (k2,) = [mutation for mutation in all_mutations if mutation.words == "0.75: 0.5"]
        ((_, answer),) = replace(search, cases=()).answers(MODULE, [k2])
        assert answer.verdict == "found"
        levels, _ = tool.GENERATORS["token_kl"].draw(answer.where["number"])
        assert answer.where["levels"] == json.loads(json.dumps(levels))
        assert levels["estimator"] == "k2"

    def test_an_equivalent_mutation_is_not_caught(self, search: tool.Search, all_mutations: list[Mutation]) -> None:
        """No input that runs its function reveals it."""
        (warns,) = [mutation for mutation in all_mutations if mutation.words == EQUIVALENT]
        ((_, answer),) = search.answers(MODULE, [warns])
        assert (answer.verdict, answer.inputs) == ("equivalent", 400)

    def test_a_difference_below_the_textbook_limit_is_ignored(self, search: tool.Search) -> None:
        """A careful program may be off by one rounding of float32, but not by NaN."""
        usual = {"dtype": "float32", "estimator": "k3", "kl_ratio": "none", "step": 0.3}
        sample = next(candidate for candidate in search.samples if usual.items() <= candidate.levels.items())
        declared = search.declared["token_kl"]
        assert not differs(declared, sample, {"kl": sample.wanted["kl"] * (1 + 2.0**-23)})
        assert differs(declared, sample, {"kl": sample.wanted["kl"] * 1.01})
        assert differs(declared, sample, {"kl": np.full_like(sample.wanted["kl"], np.nan)})


class TestForks:
    """A mutation runs in a process of its own."""

    def test_an_error_of_the_tool_is_raised(self) -> None:
        """An error of the tool does not count as caught."""
        assert in_fork(lambda: "text", 60.0) == "text"
        with pytest.raises(RuntimeError, match="ZeroDivisionError"):
            in_fork(lambda: str(1 // 0), 60.0)

    def test_an_endless_mutation_is_stopped(self) -> None:
        """The result is empty after the time limit."""

        def hang() -> str:
            while time.monotonic():
                pass
            return ""

        assert in_fork(hang, 0.2) == ""


class TestTheOrderOfCases:
    """The order of the cases."""

    def test_quick_cases_come_first_and_found_ones_last(self) -> None:
        """So a found case only catches mutations that no other case catches."""
        known = load()
        jobs = ordered(plan([known.gates["kl.k3.matches-definition"]], [known.subjects["numpy"]], quick=False))
        groups = [(job.case.name.startswith(FOUND), not job.case.quick) for job in jobs]
        assert groups == sorted(groups)

    def test_importers_of_a_module(self) -> None:
        """The losses take their ratios from another module."""
        assert importers("loss") == {"loss"}
        assert {"ratio", "loss", "kl"} <= importers("ratio")
        assert "policy_loss" in operations()


class TestTheRecord:
    """`results/judge/inputs.json` after each module."""

    @pytest.fixture
    def record(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """Use a temporary record and a fake search that is interrupted at `ratio`."""
        path = tmp_path / "inputs.json"
        monkeypatch.setattr(tool, "RECORD", path)

        def searched(module: str, inputs: int, *, quick: bool = False) -> dict[str, Any]:
            if module == "ratio":
                raise KeyboardInterrupt
            return {"found": 0, "inputs_of_each_op": inputs, "quick": quick}

        monkeypatch.setattr(tool, "searched", searched)
        return path

    def test_an_interrupted_search_resumes(self, record: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """It keeps its results and continues after them."""
        monkeypatch.setattr(sys, "argv", ["tool", "kl", "ratio", "loss", "--record", "--inputs", "7"])
        assert tool.main() == 130
        assert json.loads(record.read_text()) == {
            "modules": {"kl": {"found": 0, "inputs_of_each_op": 7, "quick": False}}
        }
        monkeypatch.setattr(sys, "argv", ["tool", "kl", "loss", "--record", "--resume", "--inputs", "9"])
        assert tool.main() == 0
        modules = json.loads(record.read_text())["modules"]
        assert [(name, summary["inputs_of_each_op"]) for name, summary in modules.items()] == [("kl", 7), ("loss", 9)]

    def test_found_mutations_are_tried_again(self, record: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A new case catches one of them; equivalent ones are unchanged."""
        lines = [
            {"line": 1, "function": "f", "change": str(k), "verdict": v}
            for k, v in enumerate(["found", "found", "equivalent"])
        ]
        before = {"inputs_of_each_op": 7, "mutations": 6, "caught": 3, "found": 2, "survivors": lines}
        record.write_text(json.dumps({"modules": {"kl": before}}))
        tree = ast.parse("")
        monkeypatch.setattr(tool, "mutations", lambda _: [Mutation(1, "f", str(k), tree) for k in range(4)])
        monkeypatch.setattr(tool, "of", lambda *_: None)
        tried: list[str] = []

        def tried_all(_search: None, _module: str, chosen: list[Mutation]) -> Iterator[dict[str, Any]]:
            for mutation in chosen:
                tried.append(mutation.words)
                yield {
                    "line": 1,
                    "function": "f",
                    "change": mutation.words,
                    "verdict": "new case" if mutation.words == "1" else "found",
                }

        monkeypatch.setattr(tool, "tried_all", tried_all)
        monkeypatch.setattr(sys, "argv", ["tool", "--record", "--again"])
        assert tool.main() == 1
        known = json.loads(record.read_text())["modules"]["kl"]
        assert tried == ["0", "1"]
        assert sorted(line["verdict"] for line in known["survivors"]) == ["equivalent", "found", "new case"]
        assert (known["caught"], known["new_case"], known["found"], known["equivalent"]) == (3, 1, 1, 1)

    def test_a_quick_search_is_not_recorded(self, record: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Mutations that only the other cases catch would count as found."""
        monkeypatch.setattr(sys, "argv", ["tool", "--record", "--quick"])
        with pytest.raises(SystemExit, match="2"):
            tool.main()
        assert not record.exists()


def test_the_recorded_search_adds_up() -> None:
    """Every mutation of a searched module is caught or listed with its verdict and the commit."""
    modules = json.loads((Path(__file__).parents[3] / "results" / "judge" / "inputs.json").read_text())["modules"]
    assert {"loss", "advantages", "kl", "preference"} <= set(modules)
    for summary in modules.values():
        verdicts = [line["verdict"] for line in summary["survivors"]]
        assert set(verdicts) <= {"new case", "found", "equivalent"}
        assert summary["mutations"] == summary["caught"] + len(verdicts)
        for name in ("new case", "found", "equivalent"):
            assert summary[name.replace(" ", "_")] == verdicts.count(name)
        assert summary["commit"]
