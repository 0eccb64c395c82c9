"""The signature of a subject's function decides which optional arguments it lacks, before it is called."""

import functools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from doubles import DOUBLE, make_gate

from gates.model import Case, Evidence, Gate, Op, Trial, Verdict
from gates.run.execute import run
from gates.run.plan import Options, plan
from gates.subjects import catalogue
from gates.worker import declarations
from gates.worker.process import Worker

OP = replace(
    DOUBLE,
    inputs={"x": "float64 (N,)", "delta": "the bound of a dual clip, or None"},
    oracle=lambda x, delta=None: 2.0 * x,
    optional=("delta",),
)
WITHOUT = "double does not take `delta`, which is optional"
HEAD = "import functools\nfrom operator import itemgetter\nimport numpy as np\nCALLED = []\n"


def gate(op: Op = OP, **inputs: Any) -> Gate:
    def check(t: Trial) -> Iterator[Evidence]:
        wanted = t.want(op, **t.inputs)
        yield t.within("y", t.got(op, **t.inputs)["y"], wanted)

    case = Case("some", lambda rng: {"x": rng.normal(size=4), **inputs}, quick=True)
    return make_gate(check, ops=(op,), cases=(case,))


def judged(folder: Path, text: str, asked: Gate) -> Verdict:
    (folder / "mine.py").write_text(f"{HEAD}{text}\nOPS = {{'double': double}}\n")
    (found,) = run(plan([asked], [catalogue.from_file(str(folder / "mine.py"), None)], quick=True), Options())
    return found.verdict


def test_without_it_nothing_is_passed(tmp_path: Path) -> None:
    """None is what an optional argument is where nobody asks for it."""
    verdict = judged(tmp_path, "def double(x):\n    return {'y': 2 * x}", gate(delta=None))
    assert verdict.status == "correct", verdict


RAISES = "TypeError: inner() got an unexpected keyword argument 'delta'"
INNER = "def inner(x):\n    return {'y': 2 * x}\n"


@pytest.mark.parametrize(
    ("text", "status", "reason"),
    [
        ("def double(x):\n    open('/called', 'w')", "unsupported", WITHOUT),
        ("def double(x, *, delta=None):\n    return {'y': 2 * x}", "correct", ""),
        (f"{INNER}def double(x, delta=None):\n    return inner(x=x, delta=delta)", "hardening", RAISES),
        (f"{INNER}def double(**rest):\n    return inner(**rest)", "hardening", RAISES),
        (f"{INNER}def double(x, **rest):\n    return inner(x)", "correct", ""),
        (f"{INNER}@functools.wraps(inner)\ndef double(*some, **rest):\n    return inner(*some, **rest)", "unsupported", WITHOUT),
        (f"{INNER}@functools.wraps(inner)\ndef double(*, delta, **rest):\n    return inner(**rest)", "correct", ""),
        (f"{INNER}double = functools.partial(inner)", "unsupported", WITHOUT),
        (f"{INNER}class Module:\n    forward = staticmethod(inner)\n    def __call__(self, *some, **rest):\n        return inner(**rest)\ndouble = Module()", "unsupported", WITHOUT),
        ("def double(x, delta, /):\n    return {'y': 2 * x}", "hardening", "positional-only arguments passed as keyword"),
        ("def double(x):\n    raise TypeError(\"f() got an unexpected keyword argument 'delta'\")", "unsupported", WITHOUT),
    ],
    ids=["lacks it", "has it", "raises inside", "any keyword, raises", "any keyword", "decorated", "decorator adds it", "partial", "module", "by position", "text of an exception"],
)  # fmt: skip
def test_an_optional_argument_is_bound_before_the_call(tmp_path: Path, text: str, status: str, reason: str) -> None:
    """A TypeError of the body is an exception like any other, whatever its words are."""
    verdict = judged(tmp_path, text, gate(delta=3.0))
    assert verdict.status == status, verdict
    assert reason in verdict.reason


def test_a_type_error_of_the_body_is_no_refusal(tmp_path: Path) -> None:
    """A function that has the argument is at fault, even where it raises in the words of Python's binding."""
    body = "def double(x, delta=None):\n    raise TypeError(\"g() got an unexpected keyword argument 'delta'\")"
    verdict = judged(tmp_path, body, gate(delta=3.0))
    assert (verdict.status, verdict.cause) == ("hardening", "raised")


def test_a_callable_without_a_signature_refuses_by_its_message(tmp_path: Path) -> None:
    """Nothing else is known of a builtin."""
    body = (
        "class Builtin:\n    __signature__ = 'none'\n    def __call__(self, x):\n        return {'y': 2 * x}\n"
        "double = Builtin()"
    )
    verdict = judged(tmp_path, body, gate(delta=3.0))
    assert (verdict.status, verdict.reason) == ("unsupported", WITHOUT)


def test_a_required_argument_that_is_lacking_is_named(tmp_path: Path) -> None:
    """It stays an exception; the reason says what the argument is and where the op is described."""
    inputs = {"x": OP.inputs["x"], "advantages": "(N,) advantages"}
    required = replace(OP, inputs=inputs, optional=(), oracle=lambda x, advantages: 2.0 * x)
    verdict = judged(tmp_path, INNER.replace("inner", "double"), gate(required, advantages=3.0))
    assert (verdict.status, verdict.cause) == ("raises", "raised")
    assert verdict.reason.endswith(
        "; it has no argument `advantages` ((N,) advantages), which double is given: `gates ops double`"
    )


@pytest.mark.parametrize(
    ("text", "inputs", "reason"),
    [
        ("def double(x):\n    return {'y': 2 * x}", {"beta": 0.0, "kl_estimator": None, "temperature": 1.0}, ""),
        ("def double(x, epsilon_low):\n    return {'y': 2 * x}", {"epsilon_low": 0.2, "epsilon_high": 0.2}, ""),
        (
            "def double(x, epsilon_low):\n    return {'y': 2 * x}",
            {"epsilon_low": 0.2, "epsilon_high": 0.3},
            "double has no argument `epsilon_high`, which this case gives: 0.3",
        ),
        (
            "def double(x, beta):\n    return {'y': 2 * x}",
            {"beta": 0.1, "kl_estimator": "k3"},
            "double has no argument `kl_estimator`, which this case gives: 'k3'; "  # noqa: ISC004
            "declare kl_estimator=('k3',) if it has this choice alone",
        ),
        ("def double(x):\n    return {'y': 2 * x}", {"label_smoothing": 0.0}, ""),
        (
            "def double(x):\n    return {'y': 2 * x}",
            {"old": None, "epsilon_low": 0.2, "epsilon_high": 0.3, "delta": 2.0, "cispo_bound": None},
            "",
        ),
        (
            "def double(x, cispo_bound):\n    return {'y': 2 * x}",
            {"old": None, "epsilon_high": 0.3, "cispo_bound": "absolute"},
            "double has no argument `epsilon_high`, which this case gives: 0.3",
        ),
        (
            "def double(x):\n    return {'y': 2 * x}",
            {"grad_entropy": 2.0},
            "double has no argument `grad_entropy`, which this case gives: 2.0",
        ),
    ],
    ids=["neutral", "one width", "two widths", "another value", "no smoothing", "on policy", "absolute cap", "entropy"],
)
def test_a_neutral_value_is_left_out(tmp_path: Path, text: str, inputs: dict[str, Any], reason: str) -> None:
    """A function that has no argument for it is asked the case; one that would need it is not."""
    op = replace(OP, inputs={"x": OP.inputs["x"], **dict.fromkeys(inputs, "")}, oracle=lambda x, **_: 2.0 * x)
    verdict = judged(tmp_path, text, gate(op, **inputs))
    assert (verdict.status, verdict.reason) == ("unsupported" if reason else "correct", reason)
    asked = {name for name in inputs if f"{name})" in text or f"{name}," in text}
    assert verdict.gave == asked | ({"epsilon_high", "kl_estimator", "grad_entropy"} & set(inputs) if reason else set())


def test_a_declared_choice_needs_no_argument(tmp_path: Path) -> None:
    """A single choice is not passed to a function that has no argument for it."""
    op = replace(OP, inputs={"x": OP.inputs["x"], "eps": ""}, oracle=lambda x, eps: 2.0 * x)
    body = "def double(x):\n    return {'y': 2 * x}\nCONVENTIONS = {'double': {'eps': (1e-6, None)}}"
    assert judged(tmp_path, body, gate(op, eps=1e-6)).status == "correct"
    assert judged(tmp_path, body, gate(op, eps=1e-4)).status == "unsupported"


def plain(x: Any, *, delta: Any = None) -> None: ...


class TestArguments:
    """The names that a worker reports of a function."""

    @pytest.mark.parametrize(
        ("function", "names"),
        [
            (plain, ["x", "delta"]),
            (functools.partial(plain, delta=1), ["x", "delta"]),
            (lambda x, *rest: None, ["x"]),
            (lambda x, **rest: None, None),
            (lambda *rest: None, []),
            (dict.fromkeys, []),
        ],
    )
    def test_names(self, function: Any, names: list[str] | None) -> None:
        assert declarations.arguments(function) == names

    def test_a_decorator_that_wraps_itself_ends(self) -> None:
        """A false `__wrapped__` does not hang the worker."""

        def odd(**rest: Any) -> None: ...

        odd.__wrapped__ = odd  # type: ignore[attr-defined]
        assert declarations.arguments(odd) is None

    def test_a_decorated_builtin_takes_any(self) -> None:
        @functools.wraps(max)
        def decorated(*some: Any, delta: Any = None, **rest: Any) -> None: ...

        assert declarations.arguments(decorated) is None

    def test_compiled_functions_of_mlx_have_their_names(self, tmp_path: Path) -> None:
        """mx.compile and mx.value_and_grad keep the signature."""
        pytest.importorskip("mlx.core")
        (tmp_path / "mine.py").write_text(
            "import mlx.core as mx\ndef double(x, *, delta=None): ...\n"
            "OPS = {'compiled': mx.compile(double), 'derived': mx.value_and_grad(double)}\n"
        )
        worker = Worker.start(catalogue.from_file(str(tmp_path / "mine.py"), None), threads=1)
        worker.close()
        assert {provided.arguments for provided in worker.hello.provides.values()} == {("x", "delta")}
