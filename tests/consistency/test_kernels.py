"""The table of kernels against the built module, its stub, the crate, ops, gates, benchmarks and fuzz targets."""

import ast
import re
from pathlib import Path

import pytest
from calls import EXAMPLES

import rlkernels
from benches.calls import CALLS
from gates.families.isa import gates as isa
from gates.registry import load
from gates.subjects import catalogue
from gates.subjects import rlkernels as subject
from gates.subjects.numpy_baseline import subject as baseline
from gates_reference.kernels import KERNELS, Kernel

pytestmark = pytest.mark.fast

ROOT = Path(__file__).resolve().parents[2]
TABLE = "reference/gates_reference/kernels.py"
STUB = "rust/rlkernels-python/rlkernels.pyi"
HOUSEKEEPING = {
    "available_isas",
    "build_info",
    "set_threads",
    "use_isa",
    "PolicyLoss",
    "__version__",
}  # without computation
BY_GATE = {"sample_tokens"}  # its gate calls the oracle twice: for the probabilities, then for the draw
OPS = {op.name: op for gate in load().gates.values() for op in gate.ops}

each = pytest.mark.parametrize("kernel", KERNELS.values(), ids=lambda kernel: kernel.name)


def test_the_module_exports_the_table() -> None:
    """`rlkernels.__all__` without housekeeping equals the table; after a change of Rust: `make setup`."""
    exported = set(rlkernels.__all__) - HOUSEKEEPING
    assert exported == set(KERNELS), f"edit {TABLE}: {exported ^ set(KERNELS)}"


def test_subjects_have_every_kernel() -> None:
    """rlkernels, its instruction sets and the NumPy baseline are planned for all kernels and have them."""
    assert tuple(KERNELS) == catalogue.KERNELS
    assert set(subject.OPS) == {*KERNELS, "kernel_bits"}, "edit gates/subjects/rlkernels.py"
    assert set(KERNELS) <= set(baseline.OPS), "edit gates/subjects/numpy_baseline/subject.py"


@each
def test_it_has_an_op_of_its_family_with_an_oracle(kernel: Kernel) -> None:
    """The op of its name is gated, its module is the family's, and the oracle defines it."""
    file = f"gates/families/{kernel.family}/op.py"
    assert kernel.name in OPS, f"edit {file}: no gate has an op {kernel.name!r}"
    assert OPS[kernel.name].oracle or kernel.name in BY_GATE, f"edit {file}: op {kernel.name!r} has no oracle"
    modules = {gate.check.__module__ for gate in load().gates.values() if OPS[kernel.name] in gate.ops}
    home = f"gates.families.{kernel.family}."
    assert any(module.startswith(home) for module in modules), f"edit {TABLE}: {kernel.name!r} is gated in {modules}"
    assert set(kernel.outputs) <= set(OPS[kernel.name].outputs) | {"entropy", "logprobs"}, f"edit {TABLE} or {file}"


@each
def test_it_is_in_the_stub_and_in_the_bindings(kernel: Kernel) -> None:
    """The stub documents it, the file of its module binds it, the crate computes it."""
    stub = {node.name for node in ast.parse((ROOT / STUB).read_text()).body if isinstance(node, ast.FunctionDef)}
    assert kernel.name in stub, f"edit {STUB}"
    binding = f"rust/rlkernels-python/src/{kernel.module}.rs"
    assert re.search(rf"fn {kernel.name}\b", (ROOT / binding).read_text()), f"edit {binding} or {TABLE}"
    source = ROOT / "rust/rlkernels/src"
    files = [*(source / kernel.module).rglob("*.rs"), source / f"{kernel.module}.rs"]
    texts = [file.read_text() for file in files if file.exists()]
    assert any(re.search(rf"pub fn {kernel.name}\b", text) for text in texts), f"edit {TABLE}: module of {kernel.name}"


@each
def test_it_is_timed(kernel: Kernel) -> None:
    """The table of timed calls has a call whose name starts with its op."""
    assert kernel.name in {name.partition(" ")[0] for name in CALLS}, f"edit benches/calls.py: {kernel.name!r}"


@each
def test_it_is_fuzzed(kernel: Kernel) -> None:
    file = f"rust/rlkernels/fuzz/fuzz_targets/{kernel.module}.rs"
    assert re.search(rf"\b{kernel.name}\b", (ROOT / file).read_text()), f"edit {file}"


def test_every_kernel_has_bit_identity_cases() -> None:
    compared = {op for op, _, _ in isa.KERNELS.values()}
    lanes = {kernel.name for kernel in KERNELS.values() if kernel.lanes}
    assert compared == lanes, f"edit gates/families/isa/gates.py or {TABLE}: {compared ^ lanes}"


def test_every_function_has_a_boundary_test() -> None:
    """tests/rlkernels/calls.py has a valid call of each function."""
    assert set(KERNELS) <= set(EXAMPLES), "edit tests/rlkernels/calls.py"
