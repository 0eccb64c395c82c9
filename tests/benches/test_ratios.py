"""Ratios to peers: planned rows, verification, and outcomes of absent, wrong and crashing peers."""

import ast
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import rlkernels
from benches import limits, ratios, ratios_run, rows, workloads
from gates.model import ConfigurationError
from gates.results.speed_file import read_speed
from gates.subjects.peers import environments

ROOT = Path(__file__).parents[2]
PEERS = ROOT / "gates" / "subjects" / "peers"
ROW = next(
    row for row in rows.rows() if row.name.startswith("token_kl") and (row.peer, row.shape) == ("NumPy", "1x128")
)
#: A peer for tests: its k3 is `STATEMENT`, and its other ops are wrong in different ways.
ADAPTER = """
import os
import sys
sys.path.append({shared!r})
import numpy as np
from peer_timed import Timed, only_output

def token_kl(policy, reference, **_):
    names = {{"np": np, "os": os, "policy": policy, "reference": reference}}
    return Timed({statement!r}, names, only_output("kl"), "a note")

TIMED = {{"token_kl": token_kl}}
VERSIONS = {{"mine": "1"}}
"""
RIGHT = "np.exp(reference - policy) - (reference - policy) - 1"


def adapter(stem: str) -> ast.Module:
    return ast.parse((PEERS / f"{stem}.py").read_text())


def keys(module: ast.Module, value: ast.expr | None) -> set[str]:
    """Return the keys of a dict literal, of a comprehension over functions, or of such literals in a union."""
    if isinstance(value, ast.BinOp):
        return keys(module, value.left) | keys(module, value.right)
    if isinstance(value, ast.Dict):
        return {str(ast.literal_eval(key)) for key in value.keys if key is not None}
    if isinstance(value, ast.DictComp):
        functions = value.generators[0].iter
        if isinstance(functions, ast.Name):
            functions = assigned(module, functions.id)
        assert isinstance(functions, ast.Tuple)
        # An op may stand in another file: trl_loss.policy_loss.
        return {ast.unparse(element).rpartition(".")[2] for element in functions.elts}
    return set()


def assigned(module: ast.Module, name: str) -> ast.expr | None:
    """Return the expression that the module assigns to `name`; None if it does not."""
    for node in module.body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            return node.value  # type: ignore[attr-defined, no-any-return]
    return None


def table(module: ast.Module, name: str) -> set[str]:
    """Return the keys of the table `name` that are written in this module."""
    return keys(module, assigned(module, name))


def judged() -> dict[str, Path]:
    return {name: peer.subject for name, peer in environments.peers().items() if peer.subject is not None}


@pytest.fixture
def with_adapter(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], None]:
    """Replace NumPy's rows by an adapter with this statement, in this interpreter."""
    original = ratios._subject

    def use(statement: str) -> None:
        text = ADAPTER.format(shared=str(PEERS / "shared"), statement=statement)
        (file := tmp_path / "adapter.py").write_text(text)

        def subject(*arguments: Any, **options: Any) -> Any:
            subject_ = original(*arguments, **options)
            return replace(subject_, settings={**subject_.settings, "adapter": str(file)})

        monkeypatch.setattr(ratios, "_subject", subject)

    return use


def measured(*chosen: rows.Row, **options: Any) -> list[Any]:
    return list(ratios.measure(chosen, threads=1, quick=True, **options))


class TestRows:
    """Planned rows."""

    def test_names_are_unique(self) -> None:
        names = [row.name for row in rows.rows()]
        assert len(set(names)) == len(names)

    def test_every_judged_peer_has_rows(self) -> None:
        planned = {row.peer.partition("@")[0] for row in rows.rows()}
        empty = {name for name, file in judged().items() if not table(adapter(file.stem), "TIMED")}
        assert planned - set(rows.PLAIN) == set(judged()) - empty
        assert empty == {
            "mlx-tune",
            "areal",
            "ms-swift",
            "openrlhf",
            "skyrl",
            "torchtune",
            "unsloth-zoo",
        }  # of the second tier formulas are judged, no speed

    @pytest.mark.parametrize(
        ("op", "shapes"),
        [
            ("group_advantages", {"16x4", "64x8", "256x16", "1024x32"}),
            ("token_kl", {f"{b}x{t}" for b in (1, 32) for t in (128, 512, 2048, 8192)}),
            ("selective_log_softmax", {"16x151936-flat", "256x151936-flat"}),
            ("filtered_logprobs", {"16x151936-peaked"}),
            ("sample_tokens", {"16x151936-peaked"}),
            ("policy_loss", {"32x2048"}),
            ("pack_sequences", {"1000", "100000"}),
        ],
    )
    def test_planned_shapes_exist(self, op: str, shapes: set[str]) -> None:
        """At least these without --full."""
        assert shapes <= {row.shape for row in rows.selected(ops=[op])}

    def test_quick_rows_are_small(self) -> None:
        """Rows that take minutes need --full."""
        assert max(row.reads + row.writes for row in rows.selected(quick=True)) < 1 << 20
        assert {row.size for row in rows.selected()} == {"quick", "default"}
        assert "1000000" in {row.shape for row in rows.selected(full=True)}

    def test_rows_are_selected_by_name(self) -> None:
        """A target includes its variants, ignoring case; several options select fewer rows."""
        assert {row.peer for row in rows.selected(["VERL", "numpy"])} == {"verl", "verl@vectorized", "NumPy"}
        selected = rows.selected(["torch"], ["token_kl"], ["1x128"])  # compiled rows have one shape
        assert [row.name for row in selected] == ["token_kl k3, per token 1x128 torch"]

    def test_every_row_can_be_verified_and_called(self) -> None:
        """Its op has a workload, limits, and a call of rlkernels."""
        ours = ast.parse((ROOT / "benches" / "plain" / "ours.py").read_text())
        defined = {node.name for node in ours.body if isinstance(node, ast.FunctionDef)}
        assert {row.op for row in rows.rows()} == set(limits.CHECKS) == set(workloads.OPERANDS)
        assert set(limits.CHECKS) <= defined & set(rlkernels.__all__)

    @pytest.mark.parametrize("name", sorted(judged()))
    def test_timed_ops_are_judged(self, name: str) -> None:
        """TIMED is a subset of OPS, except draws of a library's own generator, and each entry has a row."""
        module = adapter(judged()[name].stem)
        timed = table(module, "TIMED")
        assert timed - set(rows.DRAWN) <= table(module, "OPS")
        assert timed == {row.op for row in rows.rows() if row.peer == name}

    def test_grades_are_recorded(self) -> None:
        named = [row for row in rows.rows() if row.grade]
        assert len(named) > 100
        assert not {row.name for row in named if row.grade not in ratios.grades(row.peer)}


class TestGrades:
    """The label of conformance."""

    def test_peers_and_variants_have_grades(self) -> None:
        """Each has its own; a plain formula has none."""
        assert ratios.grades("rlox").get("token_kl[k3]") == "wrong"
        assert set(ratios.grades("verl@vectorized")) == {"group_advantages"}
        assert ratios.grades("NumPy") == {}

    def test_the_record_has_the_grade(self, monkeypatch: pytest.MonkeyPatch) -> None:
        absent = SimpleNamespace(ready=False)
        monkeypatch.setattr(environments, "environment", lambda _: absent)
        row = next(row for row in rows.rows() if row.peer == "rlox" and row.op == "token_kl")
        (record,) = measured(row)
        assert (record.outcome, record.conformance) == ("absent", "wrong")
        assert "gates peers sync rlox" in record.reason


class TestVerified:
    """Both sides are compared with the oracle."""

    def outputs(self) -> dict[str, Any]:
        inputs = workloads.operands(ROW.op, ROW.shape)
        d = inputs["reference"].astype(np.float64) - inputs["policy"]
        return {"kl": (np.exp(d) - d - 1).astype(np.float32)}

    def test_correct_outputs_hold(self) -> None:
        evidence = ratios._verified(ROW, {"ours": self.outputs(), "theirs": self.outputs()})
        assert [item.holds for item in evidence] == [True, True]

    @pytest.mark.parametrize(("side", "outcome"), [("ours", "wrong"), ("theirs", "peer wrong")])
    @pytest.mark.parametrize("wrong", ["nan", "other", "shape", "missing"])
    def test_wrong_outputs_are_refused(self, side: str, outcome: str, wrong: str) -> None:
        """A NaN, another value, another shape, or a missing output."""
        sides = {"ours": self.outputs(), "theirs": self.outputs()}
        if wrong == "missing":
            sides[side] = {}
        elif wrong == "shape":
            sides[side]["kl"] = sides[side]["kl"][:, 1:]
        else:
            sides[side]["kl"][0, 3] = np.nan if wrong == "nan" else 7.0
        with pytest.raises(ratios.UnmeasuredError) as stop:
            ratios._verified(ROW, sides)
        assert stop.value.outcome == outcome


class TestOutcomes:
    """The outcome of a row, in real workers."""

    @pytest.mark.alone
    def test_two_correct_sides_are_timed(self, with_adapter: Callable[[str], None]) -> None:
        """The record has both times, ratio, control, evidence and versions, over all processes."""
        with_adapter(f"[{RIGHT} for _ in range(50)][0]")
        (record,) = measured(ROW, processes=2)
        assert (record.outcome, record.note, record.processes, record.pairs) == ("timed", "a note", 2, 8)
        assert record.ratio.value > 10
        assert record.ratio.value == pytest.approx(record.theirs.median_us / record.ours.median_us, rel=0.7)
        assert 0.2 < record.control.value < 5
        assert len(record.evidence) == 2
        assert record.ours.statement.startswith("token_kl(policy, reference, estimator='k3'")
        assert record.versions["mine"] == "1"
        assert record.isa in rlkernels.available_isas()

    @pytest.mark.parametrize(
        ("statement", "outcome", "reason"),
        [
            ("np.exp(policy - reference) - (policy - reference) - 1", "peer wrong", "must be <= 1"),
            ("no_such_name", "error", "no_such_name"),
            ("os.abort()", "error", "SIGABRT"),
            ("(_ for _ in ()).throw(NotImplementedError('not here'))", "unsupported", "not here"),
        ],
        ids=["wrong", "raises", "crashes", "unsupported"],
    )
    def test_a_peer_never_ends_the_run(
        self, statement: str, outcome: str, reason: str, with_adapter: Callable[[str], None]
    ) -> None:
        """The row has the reason, and the next row is measured in a new worker if needed."""
        with_adapter(statement)
        first, second = measured(ROW, ROW)
        assert (first.outcome, second.outcome) == (outcome, outcome)
        assert reason in first.reason
        assert first.ratio is None

    def test_a_broken_adapter_is_an_error(self, with_adapter: Callable[[str], None], tmp_path: Path) -> None:
        """Its rows are errors; with a missing dependency they are absent."""
        with_adapter(RIGHT)
        (tmp_path / "adapter.py").write_text("1 / 0")
        assert [record.outcome for record in measured(ROW)] == ["error"]
        (tmp_path / "adapter.py").write_text("import no_such_package")
        assert [record.outcome for record in measured(ROW)] == ["absent"]

    def test_a_missing_op_is_unsupported(self) -> None:
        (record,) = measured(replace(ROW, op="no_such_kernel"))
        assert (record.outcome, record.reason) == ("unsupported", "this rlkernels has no no_such_kernel")

    def test_only_rlkernels_is_importable_by_the_peer(self, tmp_path: Path) -> None:
        folder = ratios._link(tmp_path)
        assert [entry.name for entry in folder.iterdir()] == ["rlkernels"]
        assert (folder / "rlkernels" / "__init__.py").is_file()


class TestRun:
    """The command."""

    def run(self, output: list[str], **changes: Any) -> int:
        options: dict[str, Any] = {
            "targets": ["numpy"],
            "ops": ["token_kl"],
            "shapes": [],
            "quick": True,
            "full": False,
            "threads": 1,
            "processes": None,
            "isa": "",
            "record": False,
            "as_json": False,
            "require": [],
            "only_list": False,
            "echo": lambda line, err=False: output.append(line),
        }
        return ratios_run.run(**options | changes)

    @pytest.fixture(autouse=True)
    def _elsewhere(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setattr("benches.header.RUNS", tmp_path)
        monkeypatch.setattr(ratios_run, "roofline", lambda _: None)

    def test_a_run_is_written_and_shown(self, tmp_path: Path) -> None:
        """The file is complete, and the screen has op and peer."""
        output: list[str] = []
        assert self.run(output, require=["NumPy"]) == 0
        (file,) = tmp_path.glob("kernels-*.jsonl")
        results = read_speed(file)
        assert (results.state, [row.outcome for row in results.rows]) == ("complete", ["timed"])
        assert results.header.build["threads"] == 1
        assert "NumPy" in "\n".join(output)

    def test_absent_peers_are_listed(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        """Exit code 3 if nothing was measured, 1 if an absent peer is required."""
        monkeypatch.setattr(environments, "environment", lambda _: SimpleNamespace(ready=False))
        output: list[str] = []
        assert self.run(output, targets=["rlox", "verl"]) == 3
        (file,) = tmp_path.glob("kernels-*.jsonl")
        summary = read_speed(file).summary
        assert summary is not None
        assert (summary.absent, summary.counts) == (["rlox", "verl"], {"absent": 2})
        assert self.run(output, targets=["rlox"], require=["all"]) == 1
        assert "required, but not timed: rlox" in output

    def test_an_interrupted_run_keeps_its_rows(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        original = ratios.measure

        def stopped(chosen: list[rows.Row], **options: Any) -> Iterator[Any]:
            yield from original(chosen[:1], **options)
            raise KeyboardInterrupt

        monkeypatch.setattr(ratios, "measure", stopped)
        with pytest.raises(KeyboardInterrupt):
            self.run([], ops=["token_kl", "policy_loss"])
        (file,) = tmp_path.glob("kernels-*.jsonl")
        assert read_speed(file).state == "incomplete: 1 of 3"

    @pytest.mark.parametrize(
        "changes", [{"targets": ["rlx"]}, {"ops": ["kl"]}, {"shapes": ["7x7"]}, {"require": ["liger"]}, {"isa": "mmx"}]
    )
    def test_unknown_names_are_refused(self, changes: dict[str, Any]) -> None:
        with pytest.raises(ConfigurationError, match="must"):
            self.run([], **changes)

    @pytest.mark.long
    def test_rlox_is_timed(self) -> None:
        """In rlox's environment advantages and packing are timed, its k3 is refused."""
        if not environments.environment("rlox").ready:
            pytest.skip("no environment of rlox: `gates peers sync rlox`")
        command = [sys.executable, "-m", "gates", "bench", "kernels", "--quick", "--targets", "rlox", "--json"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        records = {record["op"]: record for record in map(json.loads, done.stdout.splitlines())}
        assert {op: record["outcome"] for op, record in records.items()} == {
            "group_advantages": "timed",
            "pack_sequences": "timed",
            "token_kl": "peer wrong",
        }
        assert records["group_advantages"]["versions"]["rlox"] == "1.2.0"


class TestStatements:
    """Statements of a library's method, run separately."""

    @pytest.fixture
    def cut(self, monkeypatch: pytest.MonkeyPatch) -> Any:
        monkeypatch.syspath_prepend(str(PEERS / "shared"))
        import peer_timed  # noqa: PLC0415  a module in the folder of the adapters

        return peer_timed.cut

    def test_statements_become_a_function(self, cut: Any) -> None:
        """From the first to the last, with the names of the module."""
        assert cut(_long, "half =", "scaled =", ("values",), "scaled")([1.0, 3.0]) == [0.5, 1.5]

    def test_another_version_is_an_error(self, cut: Any) -> None:
        with pytest.raises(LookupError, match="another version"):
            cut(_long, "half =", "quarter =", ("values",), "scaled")


def _long(values: list[float]) -> int:
    raise RuntimeError(values)
    half = 0.5
    scaled = [half * value for value in values]
    return len(scaled) // 0
