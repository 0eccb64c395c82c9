"""Cells of the conformance matrix: compositions, uses, blanks, and rows of findings."""

from pathlib import Path

import pytest
from libraries import finding, grade, header

from gates.model import GRADES
from gates.report.conformance.cells import APART, WORST_FIRST, Cell, cell, matrix
from gates.report.conformance.composition import axes_of, departing, in_columns
from gates.report.conformance.rows import BY_TITLE, ROWS, placed, rows_of
from gates.results.conformance_records import (
    ConformanceResults,
    CoverageRecord,
    FindingRecord,
    GradeRecord,
    read_conformance,
)
from gates.results.library_facts import LibraryFacts, read_facts

FOLDER = Path(__file__).resolve().parents[3] / "results" / "conformance"
LIBRARIES = [read_conformance(path) for path in sorted(FOLDER.glob("*.jsonl"))]


def about(name: str, kind: str = "bug", **changes: object) -> FindingRecord:
    """Return a finding that no op shows, with changes."""
    return finding(name, kind).model_copy(update={"ops": [], "departures": [], **changes})


def made(row: str, *grades: GradeRecord, findings: tuple[FindingRecord, ...] = (), **known: object) -> Cell:
    """Return the cell of a library with these grades, and with findings about the row."""
    library = ConformanceResults(header("fake"), list(grades), findings=list(findings))
    facts = LibraryFacts.model_validate({"version": "1", "trainers": {}, "named": {}, **known})
    return cell(BY_TITLE[row], library, findings, facts)


class TestGrade:
    """The grade of a cell is that of default runs."""

    def test_rare_input_and_lost_digits_cost_none(self) -> None:
        for status in ("fragile", "imprecise", "hardening"):
            assert made("GRPO", grade("fake", "policy_loss[grpo]", status)).grade == "correct"

    def test_what_an_option_shows_stands_beside(self) -> None:
        found = made(
            "RLOO",
            grade("fake", "policy_loss[rloo]", "correct"),
            grade("fake", "loss_of_completions[rloo]", "wrong", ("fake-rloo",)),
            findings=(about("fake-rloo", use="option", ops=["loss_of_completions[rloo]"]),),
        )
        assert (found.grade, found.use, found.otherwise) == ("correct", "default", {"option": "wrong"})

    def test_where_only_an_option_reaches_the_row_it_is_the_grade(self) -> None:
        found = made("IPO", findings=(about("fake-ipo", use="option"),))
        assert (found.kind, found.grade, found.use, found.otherwise) == ("judged", "wrong", "option", {})

    def test_a_program_without_an_op_makes_a_cell_wrong(self) -> None:
        """A library whose loss no op reaches is not clean."""
        found = made("GRPO", findings=(about("fake-grpo", use="default", departures=["grpo, row sum"]),))
        assert (found.kind, found.grade, found.default and found.default.choices) == ("judged", "wrong", "row sum")

    def test_a_finding_that_was_not_reproduced_makes_nothing_wrong(self) -> None:
        assert made("GRPO", findings=(about("fake-grpo", reproduced=False),)).kind == "not judged"

    def test_grades_are_those_of_the_judge(self) -> None:
        assert {*WORST_FIRST, *APART} - {"departs"} == set(GRADES)


class TestComposition:
    """What a library computes by default, and nearest to the paper."""

    def test_an_update_says_the_default(self) -> None:
        found = made(
            "GRPO",
            grade("fake", "training_step[grpo]", "correct"),
            grade("fake", "policy_loss[grpo]", "correct").model_copy(update={"settings": ["loss_type (dapo)"]}),
            trainers={"grpo": {"algorithm": "dapo", "beta": 0.0}},
        )
        assert found.default is not None
        assert (found.default.choices, found.default.by) == ("token mean, no KL", "update")
        assert found.nearest is not None
        assert (found.nearest.choices, found.nearest.by, found.nearest.chosen) == (
            "",
            "function",
            ("loss_type (dapo)",),
        )

    def test_settings_that_the_updates_contradict_name_nothing(self) -> None:
        """A trainer whose updates are wrong does not compute what its settings say."""
        found = made(
            "GRPO",
            grade("fake", "training_step[grpo]", "wrong", ("fake-grpo",)),
            findings=(about("fake-grpo", use="default", departures=["grpo, no ratio"]),),
            trainers={"grpo": {"algorithm": "dapo", "beta": 0.1}},
        )
        assert found.default is not None
        assert (found.grade, found.default.choices) == ("wrong", "no ratio")

    def test_a_finding_says_the_default_where_the_call_is_not_it(self) -> None:
        found = made(
            "SimPO",
            grade("fake", "preference_loss[simpo]", "correct").model_copy(update={"settings": ["alpha = 0 (1)"]}),
            findings=(about("fake-simpo", "trap", grade="correct", departures=["simpo, a likelihood by default"]),),
        )
        assert found.default is not None
        assert found.default.choices == "a likelihood by default"
        assert found.nearest is not None

    def test_a_variant_is_the_default_where_the_preset_is_not_there(self) -> None:
        found = made("GRPO", grade("fake@own", "policy_loss[grpo, no bound, token mean]", "correct"))
        assert found.default is not None
        assert found.default.choices == "no bound, token mean"

    @pytest.mark.parametrize(
        ("settings", "preset", "words"),
        [
            ({"algorithm": "grpo", "beta": 0.1}, "grpo", ""),
            ({"algorithm": "rloo", "epsilon_low": 0.2}, "rloo", "clip"),
            ({"algorithm": "gspo", "aggregation": "token-mean", "beta": 0.1}, "gspo", "token mean"),
            ({"loss": "cpo", "nll": 0.0}, "cpo", "no likelihood"),
            ({"loss": "orpo", "nll_tokens": "all"}, "orpo", "likelihood of prompt and completion"),
            ({"loss": "dpo", "beta": 0.1}, "dpo", ""),
        ],
    )
    def test_settings_in_words(self, settings: dict[str, object], preset: str, words: str) -> None:
        assert departing(settings, preset) == words

    def test_axes_in_columns(self) -> None:
        columns = in_columns({"algorithm": "rloo", "epsilon_low": 0.2, "epsilon_high": 0.2, "kl_in_reward": 0.05})
        assert columns["bound"] == "clip 0.2, 0.2"
        assert columns["KL"] == "in the reward, weight 0.05"
        assert axes_of("grpo", "no ratio, row sum") == {
            "ratio": "no ratio",
            "bound": "no bound",
            "aggregation": "row sum",
        }


class TestBlanks:
    """Absent, present and not judged, refused."""

    def test_absent(self) -> None:
        assert made("GRPO").kind == "absent"

    def test_a_name_of_the_package_is_present(self) -> None:
        found = made("GRPO", named={"GRPO": "fake/grpo.py:3"})
        assert (found.kind, found.why) == ("not judged", "no case asks it; named at fake/grpo.py:3")

    def test_a_listed_name_says_why(self) -> None:
        row = CoverageRecord(
            source="classes fake.kto",
            name="FakeKTOTrainer",
            status="needs a training step",
            reason="training_step[kto]: its masks",
        )
        library = ConformanceResults(header("fake"), coverage=[row])
        found = cell(BY_TITLE["KTO"], library, ())
        assert (found.kind, found.why) == (
            "not judged",
            "FakeKTOTrainer: needs a training step (training_step[kto]: its masks)",
        )

    @pytest.mark.parametrize(
        ("row", "name", "has"),
        [
            ("Dr. GRPO", "DrGRPOAlgorithm", True),
            ("Dr. GRPO", "dr_grpo", True),
            ("GRPO", "support", False),
            ("PPO", "support", False),
            ("PPO", "RayPPOTrainer", True),
            ("SimPO", "SimPOTrainer", True),
            ("KL", "tickle", False),
        ],
    )
    def test_names_are_whole_words(self, row: str, name: str, has: bool) -> None:
        assert BY_TITLE[row].names(name) == has


class TestRecorded:
    """The libraries of results/conformance."""

    def test_every_op_has_a_row(self) -> None:
        lost = {g.op for lib in LIBRARIES for g in lib.grades if not rows_of(g.op, g.subject)}
        assert lost == set()

    def test_every_finding_has_a_row(self) -> None:
        """Where neither its ops nor its departures say which, `rows` of its declaration does."""
        lost = {name for library in LIBRARIES for name, rows in placed(library).items() if not rows}
        assert lost == set()

    def test_declared_rows_exist(self) -> None:
        said = {row for library in LIBRARIES for finding in library.findings for row in finding.rows}
        assert said <= {row.title for row in ROWS}

    def test_every_finding_but_numeric_ones_is_linked_from_a_cell(self) -> None:
        linked = {f.id for cell in matrix(LIBRARIES, read_facts(FOLDER)).values() for f in cell.findings}
        assert {f.id for library in LIBRARIES for f in library.findings if f.kind != "numeric"} - linked == set()

    def test_facts_are_of_the_judged_versions(self) -> None:
        facts = read_facts(FOLDER)
        versions = {peer: known.version for peer, known in facts.items()}
        stale = {lib.header.peer for lib in LIBRARIES if versions.get(lib.header.peer) != lib.header.version}
        assert stale == set(), "run tools/peer_facts.py"

    def test_a_trainer_that_is_judged_has_recorded_defaults(self) -> None:
        facts = read_facts(FOLDER)
        ops = [(lib.header.peer, g.op) for lib in LIBRARIES for g in lib.grades if g.op.startswith("training_step[")]
        known = {(peer, trainer) for peer, entry in facts.items() for trainer in entry.trainers}
        lost = [(peer, op) for peer, op in ops if (peer, op[len("training_step[") : -1]) not in known]
        assert lost == [], "run tools/peer_facts.py"
