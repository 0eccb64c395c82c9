"""Every function of the module: nothing that comes in makes it panic, and the layout of an array changes nothing."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterator
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from calls import CALLS, EXAMPLES, bits
from foreign import CUDA, Answering, Tensor, used_capsule
from hypothesis import given, settings
from hypothesis import strategies as st

import rlkernels

Array = np.ndarray[Any, Any]


def huge() -> Array:
    """2**31 elements that take no memory, and that would take 16 GiB to copy."""
    return np.broadcast_to(np.float64(0), (2**31,))


def junk() -> list[Any]:
    """What nobody should pass, and what is legal elsewhere."""
    structured = np.zeros(3, [("mask", "f8"), ("x", "i4")])
    return [
        *(None, True, 0, -1, 1, 3, 2**31, 2**63 - 1, -(2**63), 2**63, 2**70, -(2**70), 10**5000),
        *(0.0, -0.0, 1.5, 1e308, 5e-324, float("nan"), float("inf"), -float("inf"), 1j),
        *(
            "",
            "k3",
            "sum",
            "none",
            "grpo",
            "group",
            "\ud800",
            "\0",
            "x" * 10**5,
            b"k3",
            bytearray(8),
            memoryview(b"12345678"),
        ),
        *([], [1.0, 2.0], [[1], [2, 3]], (), (1,), {}, {"a": 1}, {1}, range(3), slice(3), ..., NotImplemented),
        *(object(), object, len, rlkernels, lambda: 1, Exception("x"), iter([])),
        *(np.float64(1), np.float32(2), np.int64(3), np.bool_(True), np.datetime64("2020-01-01"), np.str_("k1")),
        *(np.array(1.0), np.array(3), np.array("k3"), np.array(None), np.array([None, 1.0]), np.array(["a", "b"])),
        *(np.empty(0), np.empty((0, 0)), np.empty((3, 0)), np.empty((0, 3)), np.empty(0, int), np.empty((0,), bool)),
        *(
            np.zeros(1),
            np.zeros(3),
            np.zeros((4, 5)),
            np.zeros((2, 2, 2)),
            np.zeros((1,) * 8),
            np.zeros((1,) * 9),
            np.zeros((1,) * 64),
        ),
        *(np.zeros(6, t) for t in "?bBhHiIlLqQefdgFDGOSUVmM"),
        *(np.zeros((4, 5), t) for t in "?bQefd"),
        *(np.full((4, 5), v) for v in (np.nan, np.inf, -np.inf, 1e308, 5e-324, -1.0)),
        *(np.full(6, v) for v in (np.nan, np.inf, -np.inf, 1e308)),
        *(np.array([0, -1]), np.array([2**63 - 1, 2**63 - 1]), np.array([2**64 - 1], np.uint64), np.array([5, -5, 20])),
        *(structured, structured.view(np.recarray), np.ma.masked_array([1.0, 2.0], [True, False]), np.ma.masked),
        *(
            np.zeros((5, 4)).T,
            np.zeros(12)[::2],
            np.zeros(6)[::-1],
            np.zeros((4, 5), ">f8"),
        ),
        *(
            huge(),
            np.broadcast_to(0, (2**31,)),
            np.broadcast_to(np.False_, (2**16, 2**16)),
            np.broadcast_to(0.0, (2**40, 0)),
        ),
        *(np.lib.stride_tricks.as_strided(np.zeros(1), (2**20, 2**20), (0, 0)),),
        *(Tensor(np.zeros(6)), Tensor(np.zeros(6), CUDA), Tensor(np.zeros((4, 5)), requires_grad=True), Tensor),
        *(Answering(None), Answering(OSError("x")), Answering(None, "cpu"), Answering(used_capsule())),
        *(mx.array(1.0), mx.array([1.0, 2.0]), mx.zeros((4, 5)), mx.zeros((4, 5), mx.bfloat16), mx.array([1 + 1j])),
    ]


JUNK = junk()
PARAMETERS = {
    name: list(inspect.signature(getattr(rlkernels, name)).parameters) for name in EXAMPLES if hasattr(rlkernels, name)
}
ARRAYS = [
    pytest.param(name, inputs, argument, id=f"{name}-{number}-{argument}")
    for number, (name, inputs) in enumerate(CALLS)
    for argument, value in inputs.items()
    if hasattr(rlkernels, name) and isinstance(value, np.ndarray)
]
WITH_OUT = [
    pytest.param(name, inputs, id=f"{name}-{number}")
    for number, (name, inputs) in enumerate(CALLS)
    if "out" in PARAMETERS.get(name, [])
]


@pytest.fixture(autouse=True)
def _settings_restored() -> Iterator[None]:
    """What a call sets for the whole process is set back."""
    isa, threads = (rlkernels.build_info()[key] for key in ("isa", "threads"))
    yield
    rlkernels.use_isa(isa)
    rlkernels.set_threads(threads)


def raised(name: str, inputs: dict[str, Any]) -> Exception | None:
    """The error of a call; a panic, which is no `Exception`, passes through."""
    try:
        getattr(rlkernels, name)(**inputs)
    except (TypeError, ValueError) as error:
        return error
    return None


def test_every_function_has_an_example() -> None:
    """A function without an example would go through none of these tests."""
    functions = {name for name in rlkernels.__all__ if not isinstance(getattr(rlkernels, name), type | str)}
    assert functions <= set(EXAMPLES)


@pytest.mark.parametrize(
    ("name", "argument"), [pytest.param(n, a, id=f"{n}-{a}") for n, arguments in PARAMETERS.items() for a in arguments]
)
class TestJunk:
    """One wrong argument in a call that is otherwise right."""

    def test_a_wrong_argument_is_named(self, name: str, argument: str) -> None:
        """A result, or a TypeError or ValueError that names an argument in backticks."""
        for number, value in enumerate(JUNK):
            error = raised(name, {**EXAMPLES[name], argument: value})
            if error is not None:
                assert any(f"`{p}" in str(error) for p in PARAMETERS[name]), (number, type(value), error)

    def test_some_junk_is_refused(self, name: str, argument: str) -> None:
        """Most of it: an argument that takes anything is not looked at."""
        refused = [raised(name, {**EXAMPLES[name], argument: value}) for value in JUNK]
        assert sum(error is not None for error in refused) > len(JUNK) / 3


@pytest.mark.parametrize("examples", [100, pytest.param(500, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", [name for name, arguments in PARAMETERS.items() if arguments])
def test_nothing_but_junk(name: str, examples: int) -> None:
    """Several wrong arguments at once, in any mixture."""

    @settings(max_examples=examples, deadline=None)
    @given(st.data())
    def check(data: st.DataObject) -> None:
        chosen = {
            argument: JUNK[data.draw(st.integers(0, len(JUNK) - 1))]
            for argument in PARAMETERS[name]
            if data.draw(st.booleans())
        }
        raised(name, {**EXAMPLES[name], **chosen})

    check()


def strided(values: Array) -> Array:
    """Every other element of a longer array."""
    return np.repeat(values, 2, axis=-1)[..., ::2]


def backwards(values: Array) -> Array:
    """Negative strides."""
    return values[..., ::-1].copy()[..., ::-1]


def read_only(values: Array) -> Array:
    """Not writable."""
    values = values.copy()
    values.flags.writeable = False
    return values


def big_endian(values: Array) -> Array:
    """The other byte order on every machine that we run on."""
    return values.astype(values.dtype.newbyteorder(">"))


def misaligned(values: Array) -> Array:
    """One byte off."""
    result: Array = np.empty(values.nbytes + 1, np.uint8)[1:].view(values.dtype).reshape(values.shape)
    result[...] = values
    return result


class Subclass(np.ndarray[Any, Any]):
    """Somebody's own array."""


def subclass(values: Array) -> Array:
    """A subclass of NumPy's array."""
    return values.view(Subclass)


LAYOUTS: list[Callable[[Array], Any]] = [
    *(strided, backwards, np.asfortranarray, read_only, big_endian, misaligned, subclass),
    *(Tensor, lambda values: Tensor(strided(values)), lambda values: Tensor(misaligned(values))),
]


@pytest.mark.parametrize(("name", "inputs", "argument"), ARRAYS)
class TestLayouts:
    """However an array lies in memory, the result has the same bits."""

    def test_same_bits(self, name: str, inputs: dict[str, Any], argument: str) -> None:
        """Strided, read-only, big-endian, misaligned, a subclass, or another library's."""
        function = getattr(rlkernels, name)
        want = bits(function(**inputs))
        kept = inputs[argument].copy()
        for layout in LAYOUTS:
            assert bits(function(**{**inputs, argument: layout(inputs[argument])})) == want, layout
        assert np.array_equal(kept, inputs[argument])

    def test_mlx(self, name: str, inputs: dict[str, Any], argument: str) -> None:
        """An MLX array in the place of a NumPy array of the same type."""
        function = getattr(rlkernels, name)
        single = {k: v.astype(np.float32) if _is_float64(v) else v for k, v in inputs.items()}
        value = single[argument]
        want = bits(function(**single))
        assert bits(function(**{**single, argument: mx.array(value)})) == want

    def test_broadcast(self, name: str, inputs: dict[str, Any], argument: str) -> None:
        """Strides of 0: one element that stands everywhere is read as an array of it, or refused with the same words."""
        first = inputs[argument].reshape(-1)[0]

        def outcome(value: Array) -> Any:
            try:
                return bits(getattr(rlkernels, name)(**{**inputs, argument: value}))
            except ValueError as error:
                return str(error)

        shape = inputs[argument].shape
        assert outcome(np.broadcast_to(first, shape)) == outcome(np.full(shape, first))

    def test_out_may_not_overlap(self, name: str, inputs: dict[str, Any], argument: str) -> None:
        """A result that would overwrite an input while it is read is refused; beside it is well."""
        if "out" not in PARAMETERS[name]:
            pytest.skip("the result is not one array")
        function = getattr(rlkernels, name)
        want = np.asarray(written(function(**inputs)))
        value = inputs[argument]
        buffer = np.zeros(value.nbytes + want.nbytes, np.uint8)
        inside = buffer[: value.nbytes].view(value.dtype).reshape(value.shape)
        inside[...] = value
        over = buffer[: want.nbytes].view(want.dtype).reshape(want.shape)
        beside = buffer[value.nbytes :].view(want.dtype).reshape(want.shape)
        if want.size and value.size:
            with pytest.raises(ValueError, match="`out` shares memory with an input, must have memory of its own"):
                function(**{**inputs, argument: inside}, out=over)
        if beside.flags.aligned:
            assert written(function(**{**inputs, argument: inside}, out=beside)) is beside
            assert bits(beside) == bits(want)


def written(result: Any) -> Any:
    """The array that `out` stands for: the result, or the gradient of a loss."""
    return result.gradient if isinstance(result, rlkernels.PolicyLoss) else result


def _is_float64(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype == np.float64


@pytest.mark.parametrize(("name", "inputs"), WITH_OUT)
class TestOut:
    """The caller's array for the result."""

    def test_is_written_and_returned(self, name: str, inputs: dict[str, Any]) -> None:
        """The same bits as without it, whatever it held."""
        function = getattr(rlkernels, name)
        want = np.asarray(written(function(**inputs)))
        out = np.full(want.shape, np.nan, want.dtype)
        assert written(function(**inputs, out=out)) is out
        assert bits(out) == bits(want)

    def test_must_be_like_the_result(self, name: str, inputs: dict[str, Any]) -> None:
        """Type, shape, layout and the right to write are checked, and nothing is written."""
        function = getattr(rlkernels, name)
        want = np.asarray(written(function(**inputs)))
        shape = want.shape
        wrong: list[tuple[Any, type[Exception], str]] = [
            (np.empty(shape, np.float16), TypeError, "an array of float16"),
            (np.empty(shape).tolist(), TypeError, "of type (list|float)"),
            (Tensor(np.empty(shape)), TypeError, "a foreign.Tensor of float64"),
            (np.ma.zeros(shape), TypeError, "of type MaskedArray"),
            (np.empty((*shape, 1)), ValueError, "has shape"),
            (read_only(np.zeros(shape)), ValueError, "is read-only, must be writeable"),
        ]
        if want.size:
            wrong.append((big_endian(np.zeros(shape)), ValueError, "is misaligned or of foreign byte order"))
            wrong.append((misaligned(np.zeros(shape)), ValueError, "is misaligned or of foreign byte order"))
        if want.size > 1:
            wrong.append((strided(np.zeros(shape)), ValueError, "is not C-contiguous"))
        for out, error, found in wrong:
            with pytest.raises(error, match=f"`out` {'is ' if error is TypeError else ''}{found}"):
                function(**inputs, out=out)


@pytest.mark.parametrize("name", [name for name in PARAMETERS if name not in {"use_isa", "set_threads"}])
def test_threads_get_the_same_bits(name: str) -> None:
    """Eight threads on the same data do not disturb each other."""
    function, inputs = getattr(rlkernels, name), EXAMPLES[name]
    want = bits(function(**inputs))
    results: list[Any] = []
    ready = threading.Barrier(8)

    def work() -> None:
        ready.wait()
        results.extend(bits(function(**inputs)) for _ in range(50))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 400
    assert all(result == want for result in results)
