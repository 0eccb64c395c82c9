"""`gates ops` describes what a subject needs; `gates init` writes a file in which nothing passes until it is filled in."""

import json
import os
import re
import shlex
from pathlib import Path

import pytest
from command_line import here

from gates.config.format_names import InitFramework as Framework
from gates.registry import load
from gates.report.conventions import CONVENTIONS, explained
from gates.report.ops import as_text, conventions_of, ops_of
from gates.report.scaffold import FIRST, path_for, scaffold
from gates_reference.algorithms import AXES


class TestOps:
    """The table of ops, for readers and programs."""

    def test_every_op_of_every_gate_is_listed(self, tmp_path: Path) -> None:
        """With inputs, outputs, conventions, source and gates."""
        listed = json.loads(here("ops", "--json", cwd=tmp_path).stdout)
        asked = {op.name for gate in load().gates.values() for op in gate.ops}
        assert {item["op"] for item in listed} == asked
        for item in listed:
            assert item["inputs"], item
            assert item["outputs"], item
            assert item["source"], item
            assert item["gates"], item

    def test_one_op_in_full(self, tmp_path: Path) -> None:
        """Shapes, dtypes, conventions and formula of token_kl, as its cases ask for them."""
        text = here("ops", "token_kl", cwd=tmp_path).stdout
        for part in ("(B, T)", "floating point", "estimator                  'k1', 'k2', 'k3'", "k3 = exp(d) − d − 1"):
            assert part in text
        assert "Schulman" in text

    def test_a_convention_without_an_input_is_explained(self) -> None:
        """A convention such as `arithmetic` cannot be declared without its choices."""
        asking = list(load().gates.values())
        for name, op in ops_of(asking).items():
            for convention, choices in conventions_of(name, asking).items():
                explanation = explained(convention, op, choices)
                assert not explanation.startswith("such as "), (
                    f"{name}: {convention} needs a line in gates/report/conventions.py"
                )
                assert f"such as {convention}=(" in explanation
        asked = {(name, convention) for name in ops_of(asking) for convention in conventions_of(name, asking)}
        known = {*(convention for _, convention in asked), *(f"{name}.{convention}" for name, convention in asked)}
        assert set(CONVENTIONS) <= known, "gates/report/conventions.py explains what no case asks for"
        assert 'such as arithmetic=("float32",): ' in " ".join(as_text(ops_of(asking)["policy_loss"], asking).split())

    def test_clip_widths_that_are_not_passed_are_shown(self) -> None:
        """`loss_with_options` has them by algorithm."""
        asking = list(load().gates.values())
        shown = " ".join(as_text(ops_of(asking)["loss_with_options"], asking).split())
        assert '"dapo" (ε_low 0.2, ε_high 0.28) or "gspo" (ε_low 0.0003, ε_high 0.0004)' in shown

    def test_a_choice_that_must_be_declared_says_so(self, tmp_path: Path) -> None:
        """A subject that does not name an axis, a clamp or a rule of ours is not asked about it."""
        asking = list(load().gates.values())
        for name, op in ops_of(asking).items():
            gates_of = [gate for gate in asking if gate.main.name == name]
            for convention in {key for gate in gates_of for case in gate.cases for key in case.declared}:
                assert "only of a subject that declares it" in explained(convention, op, (None,)), (
                    f"{name}: {convention}"
                )
        text = " ".join(here("ops", "policy_loss", cwd=tmp_path).stdout.split())
        assert "every choice is asked, but those that are asked only of a subject that declares them" in text
        assert "a declared choice replaces that of EVERY algorithm whose own, or None, is not declared too" in text

    def test_constants_of_a_loss_name_the_choice_that_takes_them(self) -> None:
        """A declared aggregation or bound has the constants of the presets that choose it."""
        inputs = ops_of(load().gates.values())["policy_loss"].inputs
        assert inputs["max_length"] == 'L_max of aggregation "constant" (dr_grpo), else None'
        for axis, choices in AXES.items():
            assert "passed only to a function that has this argument" in inputs[axis]
            for word, choice in choices.items():
                for constant in {*choice.constants} - {"epsilon_low", "epsilon_high"}:
                    assert f'{axis} "{word}" (' in inputs[constant]

    def test_an_unknown_op_suggests_the_nearest(self, tmp_path: Path) -> None:
        """One sentence, exit code 2."""
        done = here("ops", "token_kul", cwd=tmp_path)
        assert done.returncode == 2
        assert "did you mean 'token_kl'?" in " ".join(done.stderr.split())


class TestInit:
    """The scaffold of a subject file."""

    @pytest.mark.parametrize("op", [[], ["--op", "all"]], ids=["five", "all"])
    def test_an_unfilled_op_is_unsupported(self, tmp_path: Path, op: list[str]) -> None:
        """The file runs at once, nothing passes, nothing fails, and nothing was measured."""
        assert here("init", "mylib", *op, cwd=tmp_path).returncode == 0
        done = here("check", "--quick", "--subject", "./mylib_gates.py", cwd=tmp_path)
        assert done.returncode == 3, done.stdout[-3000:]
        assert done.stdout.splitlines()[-1].startswith("exit 3: nothing was judged")
        assert "is not filled in yet" in done.stdout

    def test_a_filled_in_op_is_judged(self, tmp_path: Path) -> None:
        """`provides` declares an op and its choices; the decorated function is judged in them."""
        here("init", "mylib", "--op", "token_kl", cwd=tmp_path)
        file = tmp_path / "mylib_gates.py"
        text = file.read_text().replace("# estimator=('k1', 'k2', 'k3'),", "estimator=('k1',), reduction=('none',),")
        assert "estimator=('k1',)" in text
        filled = (
            'if lengths is not None or old is not None or mask is not None:\n        raise NotImplementedError("no")\n'
        )
        filled += '    return {"kl": policy - reference}'
        file.write_text(text.replace('raise NotImplementedError("token_kl is not filled in yet")', filled))
        done = here("check", "kl.k1", "kl.k3", "-v", "--subject", "./mylib_gates.py", cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "correct    token_kl[k1] (" in done.stdout
        assert "mylib_gates · 1 op judged · 1 correct" in done.stdout
        assert "token_kl of mylib_gates has estimator 'k1', not 'k3'" in done.stdout

    def test_an_op_declared_twice_is_refused(self, tmp_path: Path) -> None:
        """The file raises, so the subject does not start."""
        here("init", "mylib", "--op", "token_kl", cwd=tmp_path)
        file = tmp_path / "mylib_gates.py"
        file.write_text(f'{file.read_text()}\n\n@provides("token_kl")\ndef again(**inputs):\n    return {{}}\n')
        done = here("check", "kl.k1", "--quick", "--subject", "./mylib_gates.py", cwd=tmp_path)
        assert done.returncode == 1
        assert "token_kl is provided twice" in " ".join(done.stdout.split())

    def test_a_misspelt_op_is_pointed_out(self, tmp_path: Path) -> None:
        (tmp_path / "mine.py").write_text("OPS = {'tokens_kl': lambda **inputs: {}}\n")
        done = here("check", "kl.k1", "--quick", "--subject", "./mine.py", cwd=tmp_path)
        assert done.returncode == 3
        assert "token_kl is not defined by mine; it defines tokens_kl" in done.stdout

    def test_a_missing_backward_op_is_not_reported_as_misspelt(self, tmp_path: Path) -> None:
        """A subject that has the forward pass alone gets no note about a misspelt backward one."""
        (tmp_path / "mine.py").write_text("OPS = {'selective_log_softmax': lambda **inputs: {}}\n")
        done = here("check", "logprobs.backward", "--quick", "--subject", "./mine.py", cwd=tmp_path)
        assert done.returncode == 3
        assert "1 op that mine does not have (selective_log_softmax_backward)" in done.stdout
        assert "it defines" not in done.stdout

    def test_an_existing_file_is_not_overwritten(self, tmp_path: Path) -> None:
        (tmp_path / "mylib_gates.py").write_text("mine")
        done = here("init", "mylib", cwd=tmp_path)
        assert (done.returncode, "is not overwritten" in done.stderr) == (2, True)
        assert (tmp_path / "mylib_gates.py").read_text() == "mine"

    def test_the_printed_command_runs_unchanged(self, tmp_path: Path) -> None:
        """A folder's name may have a space."""
        done = here("init", "mylib", "--op", "prefer", "--folder", "a b", cwd=tmp_path)
        assert "with 1 function to fill in" in done.stdout
        command = shlex.split(done.stdout.partition("judge it with: gates ")[2])
        assert command[:2] == ["check", "--subject"]
        assert [tmp_path / file for file in command[2:]] == list(tmp_path.glob("*/mylib_gates.py"))

    def test_the_command_for_more_ops_runs_in_the_folder_of_the_file(self, tmp_path: Path) -> None:
        """The file's comment on further ops gives a command that works there."""
        assert here("init", "mylib", cwd=tmp_path).returncode == 0
        text = (tmp_path / "mylib_gates.py").read_text()
        (command,) = re.findall(r"`gates (init [^`]*)`", text)
        done = here(*command.replace("NAME", "full_kl").replace("DIR", "more").split(), cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert "def full_kl(" in (tmp_path / "more" / "mylib_gates.py").read_text()

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["my lib"], "letters, digits"),
            (["class"], "letters, digits"),
            (["mylib", "--op", "no"], "`gates ops` lists"),
            (["mylib", "--op", "token_kul"], "did you mean 'token_kl'? `gates ops` lists"),
        ],
    )
    def test_a_usage_error_is_one_sentence(self, tmp_path: Path, arguments: list[str], message: str) -> None:
        """Exit code 2, and no file."""
        done = here("init", *arguments, cwd=tmp_path)
        assert (done.returncode, message in " ".join(done.stderr.split())) == (2, True)
        assert not list(tmp_path.iterdir())

    def test_the_text_is_python_for_every_op(self, tmp_path: Path) -> None:
        """It compiles, and each function has the op's own arguments."""
        asking = list(load().gates.values())
        known = ops_of(asking)
        text = scaffold("mylib", "mylib_gates.py", known, {name: conventions_of(name, asking) for name in known})
        space: dict[str, object] = {}
        exec(compile(text, "mylib_gates.py", "exec"), space)  # noqa: S102  text that init wrote
        assert set(space["OPS"]) == set(known)  # type: ignore[call-overload]
        assert set(FIRST) <= set(known)
        assert max(map(len, text.splitlines())) <= 120, [line for line in text.splitlines() if len(line) > 120]
        assert path_for("mylib", tmp_path).name == "mylib_gates.py"


LOSS = """    if lengths is not None or weights is not None or delta is not None:
        raise NotImplementedError("no lengths, weights or delta")
    a = advantages[:, None] if advantages.ndim == 1 else advantages
    ratio = {m}.exp(policy - ({detach}(policy) if old is None else old))
    terms = -{m}.minimum(ratio * a, {m}.clip(ratio, 1 - epsilon_low, 1 + epsilon_high) * a)
    if beta:
        d = reference - policy
        terms = terms + beta * ({m}.exp(d) - d - 1)
    tokens = {m}.{maximum}
    return ({m}.where(mask, terms, 0.0).sum(1) / tokens).mean()
"""
DECLARED = (
    'algorithm=("grpo",), kl_estimator=("k3",), kl_ratio=("none",), rows=("mask",), weights=(False,), kl_clamp=(None,),'
)


class TestFramework:
    """A loss with only its forward filled in; the framework differentiates."""

    def filled_in(self, folder: Path, framework: str, **names: str) -> Path:
        """Write the scaffold of policy_loss with GRPO filled in."""
        done = here("init", "mylib", "--framework", framework, "--op", "policy_loss", cwd=folder)
        assert done.returncode == 0, done.stderr
        file = folder / "mylib_gates.py"
        text = file.read_text()
        raised = '    raise NotImplementedError("policy_loss is not filled in yet")\n'
        assert text.count(raised) == 1
        text = text.replace(raised, LOSS.format(**names))
        dtype = ' dtype=("float32",),' if framework == "mlx" else ""
        file.write_text(text.replace('    "policy_loss",\n', f'    "policy_loss",\n    {DECLARED}{dtype}\n', 1))
        return file

    def test_a_forward_in_mlx_is_enough(self, tmp_path: Path) -> None:
        pytest.importorskip("mlx.core")
        names = {"m": "mx", "detach": "mx.stop_gradient", "maximum": "maximum(mask.sum(1), 1)"}
        self.filled_in(tmp_path, "mlx", **names)
        check = ("check", "loss.grpo.matches-definition", "--quick", "--jobs", "1", "--subject", "./mylib_gates.py")
        done = here(*check, cwd=tmp_path)
        assert done.returncode == 0, done.stdout
        assert "correct    policy_loss[grpo]" in done.stdout

    def test_optional_arguments_may_be_deleted(self, tmp_path: Path) -> None:
        """Cases without them are asked, and those with them are unsupported, whatever the wrapper takes."""
        pytest.importorskip("mlx.core")
        names = {"m": "mx", "detach": "mx.stop_gradient", "maximum": "maximum(mask.sum(1), 1)"}
        file = self.filled_in(tmp_path, "mlx", **names)
        text = file.read_text().replace(" or weights is not None or delta is not None", "")
        text = text.replace(" kl_clamp=(None,),", "")
        for name in ("delta", "weights", "row_mask", "kl_clamp", "aggregation"):
            assert text.count(f"    {name}=None,\n") == 1
            text = text.replace(f"    {name}=None,\n", "")
        file.write_text(text)
        check = ("check", "loss.grpo.matches-definition", "--jobs", "1", "--subject", "./mylib_gates.py", "-v")
        done = here(*check, cwd=tmp_path)
        assert done.returncode == 0, done.stdout
        assert "policy_loss does not take `delta`, which is optional" in done.stdout
        assert "correct    policy_loss[grpo]" in done.stdout
        assert "TypeError" not in done.stdout

    def test_a_forward_in_torch_is_enough(self, tmp_path: Path) -> None:
        """In float32 and float64."""
        python = os.environ.get("TORCH_PYTHON")
        if python is None:
            pytest.skip("TORCH_PYTHON names no interpreter with torch and NumPy")
        names = {"m": "torch", "detach": "torch.detach", "maximum": "clamp(mask.sum(1), min=1)"}
        self.filled_in(tmp_path, "torch", **names)
        check = ("check", "loss.grpo.matches-definition", "--quick", "--jobs", "1", "--subject", "./mylib_gates.py")
        done = here(*check, "--python", python, cwd=tmp_path)
        assert done.returncode == 0, done.stdout
        assert "correct    policy_loss[grpo]" in done.stdout

    @pytest.mark.parametrize("framework", ["torch", "mlx"])
    def test_the_text_is_python_for_every_op(self, framework: Framework) -> None:
        """Losses with a gradient have a separate forward, and then the helper is included."""
        asking = list(load().gates.values())
        known = ops_of(asking)
        text = scaffold("mylib", "mylib_gates.py", known, {op: conventions_of(op, asking) for op in known}, framework)
        compile(text, "mylib_gates.py", "exec")
        assert set(re.findall(r"def (\w+)_of_arrays", text)) >= {"policy_loss", "preference_loss"}
        assert max(map(len, text.splitlines())) <= 120
        alone = scaffold("mylib", "mylib_gates.py", known, {"token_kl": conventions_of("token_kl", asking)}, framework)
        assert "loss_and_gradient" not in alone

    def test_an_unknown_framework_suggests_the_nearest(self, tmp_path: Path) -> None:
        """Exit code 2, with the nearest."""
        done = here("init", "mylib", "--framework", "pytorch", cwd=tmp_path)
        assert (done.returncode, "did you mean 'torch'?" in " ".join(done.stderr.replace("│", " ").split())) == (
            2,
            True,
        )
        assert not list(tmp_path.iterdir())
