"""Limits that are recorded: where they hold, what holds elsewhere, and how they are made anew."""

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from doubles import DOUBLE, make_gate
from test_calibration import RIGHT, calibrated, request

from gates.model import Bound, ConfigurationError, Evidence, Gate, Recorded, Subject, Trial, Verdict
from gates.registry import load as registry
from gates.results.jsonl import Results, Writer
from gates.results.records import CalibrationRecord, NearestRecord, verdict_record
from gates.run import limits as recorded
from gates.run.calibration import renewed
from gates.run.execute import run
from gates.run.limits import Entry, Limits, Place, limit_of, load
from gates.run.plan import Options, plan

Maker = Callable[..., Subject]
ZERO = "return {'y': 0 * x}"
GATE = "double.matches-definition"


def entry(**changes: Any) -> Entry:
    values: dict[str, Any] = {
        "gate": GATE,
        "quantity": "y",
        "case": "some",
        "backend": "numpy",
        "blas": "own",
        "limit": 4.0,
        "noise_floor": 2.0,
        "noise_seed": 1,
        "smallest_effect": 10.0,
        "mutant": "thrice",
        "seeds": 20,
        "commit": None,
        "date": "2026-11-21",
        "source": "a test",
        "history": [],
    }
    return Entry(**(values | changes))


def gate_of(limit: Recorded) -> Gate:
    """A gate whose claim is the largest |y|."""

    def check(t: Trial) -> Iterator[Evidence]:
        got = t.got(DOUBLE, **t.inputs)["y"]
        yield t.number("y", float(abs(got).max()), "<=")

    return make_gate(check, bounds={"y": Bound("calibrated", "a test", limit)})


@pytest.fixture
def limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Return a writer of the file that the judge reads."""
    file = tmp_path / "calibrated.json"
    monkeypatch.setattr(recorded, "FILE", file)

    def write(*entries: Entry) -> Path:
        recorded.write(Limits(limits=list(entries)))
        return file

    return write


def verdict(gate: Gate, subject: Subject) -> Verdict:
    (judged,) = run(plan([gate], [subject], quick=True), Options())
    return judged.verdict


class TestWhere:
    """Which limit holds where."""

    def test_the_entry_of_this_place_holds_and_says_what_it_rests_on(self, limits: Any, subject: Maker) -> None:
        """The recorded limit decides, with its noise floor, mutant and seeds as the argument."""
        limits(entry(limit=1e9), entry(backend="mlx-cpu", limit=0.0))
        found = verdict(gate_of(Recorded(2.0)), subject(RIGHT))
        assert found.status == "correct"
        assert found.evidence[0].limit == 1e9
        assert "noise floor 2 over 20 seeds, smallest mutant effect: thrice 10" in found.evidence[0].because

    def test_elsewhere_the_derived_limit_holds_and_says_so(self, limits: Any, subject: Maker) -> None:
        """Without an entry of this place the derived limit decides, and is called so."""
        limits(entry(backend="mlx-gpu"))
        found = verdict(gate_of(Recorded(2.0, derived=0.5)), subject(ZERO))
        assert (found.status, found.evidence[0].limit) == ("correct", 0.5)
        assert found.evidence[0].because.startswith("derived: ")
        assert "no limit is recorded for some on numpy with own BLAS" in found.evidence[0].because

    def test_a_portable_limit_holds_elsewhere_and_says_why(self, limits: Any, subject: Maker) -> None:
        """The largest of other places decides where the gate says that it may."""
        limits(entry(backend="mlx-gpu", limit=7.0), entry(backend="mlx-cpu", limit=6.0))
        found = verdict(gate_of(Recorded(2.0, portable="it is the method's")), subject(ZERO))
        assert (found.status, found.evidence[0].limit) == ("correct", 7.0)
        assert found.evidence[0].because.endswith("on numpy with own BLAS, but it is the method's")

    def test_without_any_it_is_an_error_that_names_the_remedy(self, limits: Any, subject: Maker) -> None:
        """Nothing can be said, and the number that was seen is kept."""
        limits(entry(case="other"))
        found = verdict(gate_of(Recorded(2.0)), subject(ZERO))
        assert (found.status, found.cause) == ("error", "uncalibrated")
        assert f"`gates calibrate {GATE} --write-limits` records one" in found.reason
        assert found.evidence[0].observed == 0.0

    @pytest.mark.parametrize(
        ("versions", "place"),
        [
            ({"numpy": "2"}, Place("numpy", "own")),
            ({"rlkernels": "0.1", "numpy": "2"}, Place("rlkernels", "own")),
            ({"mlx": "0.32", "device": "Device(cpu, 0)"}, Place("mlx-cpu", "own")),
            ({"mlx": "0.32", "device": "Device(gpu, 0)"}, Place("mlx-gpu", "own")),
            (
                {"mlx": "0.32", "device": "Device(cpu, 0)", "preloaded": "libopenblas.so.0 (OpenBLAS 0.3)"},
                Place("mlx-cpu", "openblas"),
            ),
        ],
    )
    def test_a_place_is_what_the_worker_says(self, versions: dict[str, str], place: Place) -> None:
        """Backend and BLAS come from the handshake."""
        assert Place.of(versions) == place

    def test_a_file_that_is_none_is_one_sentence(self, tmp_path: Path) -> None:
        """A damaged file is a configuration error with the remedy."""
        (tmp_path / "bad.json").write_text('{"format": 1, "limits": [{"gate": 3}]}')
        with pytest.raises(ConfigurationError, match="is no file of calibrated limits"):
            load(tmp_path / "bad.json")


class TestMaking:
    """What a limit is made of."""

    @pytest.mark.parametrize(
        ("noise", "effect", "limit"),
        [
            (1.0, 100.0, 2.0),  # twice the noise
            (1.0, 2.25, 1.5),  # the geometric mean, which is nearer
            (1.0, None, 2.0),
            (0.061234, None, 0.123),  # three digits, upwards
            (0.0, 1.0, 0.0),
        ],
    )
    def test_it_stands_between_noise_and_the_smallest_mutant(
        self, noise: float, effect: float | None, limit: float
    ) -> None:
        """So many times the noise, and never beyond the middle."""
        assert limit_of(noise, effect, 2.0) == pytest.approx(limit, rel=1e-12)

    @pytest.mark.parametrize(
        ("changes", "words"),
        [
            ({}, ""),
            ({"limit": 2.4}, "nearer than 1.25 times to noise 2"),
            ({"smallest_effect": 4.5}, "thrice gives 4.5, nearer than 1.25 times to the limit 4"),
            ({"smallest_effect": None, "mutant": ""}, "no recorded proof has a mutant beyond the noise"),
        ],
        ids=["separates", "noise", "mutant", "no mutant"],
    )
    def test_a_limit_that_does_not_separate_is_a_defect(self, changes: dict[str, Any], words: str) -> None:
        """Too near to either side, or with nothing on the other."""
        found = entry(**changes).defect()
        assert (words in found) if words else found == ""

    @pytest.mark.parametrize(("mutant_gives", "code"), [(50.0, 0), (1.2, 1)], ids=["far", "near"])
    def test_they_are_written_from_seeds_and_a_proof(
        self, tmp_path: Path, limits: Any, subject: Maker, mutant_gives: float, code: int
    ) -> None:
        """A first run writes what it measured, the next keeps it as history; too near a mutant is exit code 1."""
        file = limits()
        gate, right = gate_of(Recorded(2.0)), subject("return {'y': np.sign(x)}")
        proof = Writer(tmp_path / "prove-1.jsonl")
        proof.write(request(tmp_path, gate, right, 1).header.model_copy(update={"verb": "prove", "planned": 2}))
        broken = Evidence("y", mutant_gives, "<=", 1.1, "because")
        blind = Evidence("y", 1.0, "<=", 1.1, "because")
        for name, item in (("wrong", broken), ("blind", blind)):
            proof.write(verdict_record(Verdict(GATE, "tried", "some", 0, "wrong", "bound", "", (item,)), name))
        proof.close()
        for round_ in range(2):
            path = tmp_path / f"calibrate-{round_}.jsonl"
            assert calibrated(request(tmp_path, gate, right, 3, write_limits=True), path) == code
        (found,) = load(file).limits
        assert (found.noise_floor, found.smallest_effect, found.mutant, found.seeds) == (1.0, mutant_gives, "wrong", 3)
        assert found.limit == (2.0 if code == 0 else 1.1)  # √1.2 rounded up to three digits
        assert found.source == "calibrate-1.jsonl, prove-1.jsonl"
        assert [old.source for old in found.history] == ["calibrate-0.jsonl, prove-1.jsonl"]
        assert verdict(gate, right).status == "correct"

    @pytest.mark.parametrize("values", [(1.0, math.nan), (math.nan, 1.0), (1.0, math.inf)], ids=str)
    def test_none_is_made_of_what_is_no_number(self, tmp_path: Path, subject: Maker, values: tuple[float, ...]) -> None:
        """A correct subject that gave NaN at one seed, whichever block has it: every comparison would pass over it."""
        gate = gate_of(Recorded(2.0))
        found = Results(tmp_path / "calibrate.jsonl", request(tmp_path, gate, subject(RIGHT), 2).header)
        place: dict[str, Any] = {"backend": "numpy", "blas": "own", "cpu": "c", "full": False, "commits": []}
        for seed, observed in enumerate(values):
            seeds: dict[str, Any] = {
                "seeds": {"uncalibrated": {"some": str(seed)}},
                "retried": {},
                "false_positives": [],
            }
            near = NearestRecord(quantity="y", case="some", seed=seed, share=None, observed=observed, limit=math.nan)
            found.calibrations.append(CalibrationRecord(gate=GATE, subject="tried", **place, **seeds, nearest=[near]))
        with pytest.raises(
            ConfigurationError, match=r"y of a correct subject is (nan|inf) in some on numpy .* at seed"
        ):
            list(renewed([gate], found, []))


class TestShipped:
    """calibrated.json as it is."""

    def test_it_has_exactly_what_gates_ask_for(self) -> None:
        """Each entry is of a recorded limit, and each recorded limit has entries for every case."""
        asked = {
            (gate.id, quantity, case.name)
            for gate in registry().gates.values()
            for quantity, bound in gate.bounds.items()
            if isinstance(bound.limit, Recorded)
            for case in gate.cases
        }
        assert {found.key[:3] for found in load().limits} == asked
        assert asked

    def test_its_text_is_what_the_tool_writes(self) -> None:
        """Nobody edits it by hand: reading and writing gives the same bytes."""
        assert recorded.FILE.read_text(encoding="utf-8") == load().text()
