"""The gates of log-probs, sampling, random numbers and rewards on broken subjects; and the variants of rlkernels."""

from __future__ import annotations

import platform
import re
from pathlib import Path

import numpy as np
import pytest
from broken import broken, verdicts

from gates.families.arrays import in_dtype
from gates.families.isa import gates as isa
from gates.model import FAILURES
from gates.registry import load
from gates.run.execute import run
from gates.run.plan import Options, plan
from gates.subjects import catalogue
from gates_reference.kernels import KERNELS

ROOT = Path(__file__).parents[3]

#: Like rlkernels, with two instruction sets of its own making.
VARIANTS = """
import numpy as np
from gates.subjects.numpy_baseline import subject as whole

def kernel_bits(kernel, inputs):
    if kernel not in whole.OPS:
        raise NotImplementedError(kernel)
    outputs = whole.OPS[kernel](**{{k: v for k, v in inputs.items()}})
    row = np.frombuffer(b"".join(np.asarray(outputs[k]).tobytes() for k in sorted(outputs)), np.uint8)
    bits = np.stack([row, row])
    {damage}
    return {{"variants": ["scalar × 1", "wide × 1"][: len(bits)], "bits": bits}}

OPS = {{"kernel_bits": kernel_bits}}
"""


@pytest.mark.parametrize(
    ("gate", "op", "damage", "words"),
    [
        ("logprobs.selective.matches-definition", "selective_log_softmax", 'found["logprobs"] = found["logprobs"][:-1]', "shape"),
        ("logprobs.selective.matches-definition", "selective_log_softmax", 'found["logprobs"] = found["logprobs"].astype(np.float16)', "narrower dtype"),
        ("logprobs.selective.matches-definition", "selective_log_softmax", 'found["logprobs"] = found["logprobs"] * np.nan', "log-prob error"),
        ("logprobs.entropy.matches-definition", "selective_log_softmax", 'found.pop("entropy", None)', "must have 'entropy'"),
        ("logprobs.backward.matches-definition", "selective_log_softmax_backward", 'found["gradient"] = found["gradient"].astype(np.float64)[..., :-1]', "gradient"),
        ("sampling.filters.keep-the-right-tokens", "filtered_logprobs", 'found["logprobs"] = found["logprobs"][:, :-1]', "wrongly kept"),
        ("sampling.filters.keep-the-right-tokens", "filtered_logprobs", 'found["logprobs"] = found["logprobs"] + 1e-4', "log-prob error"),
        ("sampling.draw.inverse-cdf", "sample_tokens", 'found["tokens"] = found["tokens"] + 1', "not their uniform's"),
        ("sampling.draw.inverse-cdf", "sample_tokens", 'found["tokens"] = found["tokens"][:-1]', "not their uniform's"),
        ("sampling.temperature-zero.lowest-id", "sample_tokens", 'found["logprobs"] = found["logprobs"][:0]', "shape"),
        ("philox.known-answers", "philox4x32_10", 'found["words"] = found["words"][..., :2]', "words that differ"),
        ("philox.uniforms.keyed", "uniforms", 'found["uniforms"] = found["uniforms"] * (1 - 2.0**-52)', "uniforms that differ"),
        ("kl.full.matches-definition", "full_kl", 'found["kl"] = found["kl"][None]', "shape"),
        ("kl.ratio.matches-definition", "token_kl", 'found["kl"] = found["kl"] * (1 + 1e-5)', "kl error"),
    ],
)  # fmt: skip
def test_a_broken_answer_fails(tmp_path: Path, gate: str, op: str, damage: str, words: str) -> None:
    """Wrong shapes and dtypes, NaN, missing outputs and small errors are the subject's failure, with the reason."""
    found = verdicts(tmp_path, broken(op, damage), gate)
    failed = [verdict for verdict in found if verdict.status in FAILURES]
    assert failed, {(verdict.status, verdict.reason) for verdict in found}
    assert {verdict.status for verdict in found} <= {*FAILURES, "correct", "unsupported", "not asked"}
    assert any(words in f"{verdict.reason} {verdict.evidence}" for verdict in failed), {v.reason for v in failed}


def test_a_subject_that_promises_no_order_of_ties_is_judged_without_it(tmp_path: Path) -> None:
    """It may keep any of the tied tokens; who declares lower ids first is held to them."""
    damage = """kept = found["logprobs"] > -np.inf
    for row, keep in zip(inputs["logits"], kept):
        tied = np.flatnonzero(row == row[keep].min())
        count = int(keep[tied].sum())
        keep[tied] = np.arange(tied.size) >= tied.size - count
    found["logprobs"] = np.where(kept, -1.0, -np.inf)"""
    free = broken("filtered_logprobs", damage, conventions={"filtered_logprobs": {"ties": ["any"]}})
    assert {v.status for v in verdicts(tmp_path, free, "sampling.filters.ties")} == {"correct", "unsupported"}
    promises = {"filtered_logprobs": {"ties": ["library", "all", "lower-id"]}}
    held = broken("filtered_logprobs", damage, conventions=promises)
    by_case = {v.case: v.status for v in verdicts(tmp_path, held, "sampling.filters.ties")}
    assert set(by_case.values()) == {"correct", "wrong"}
    library = {"top-k-of-600-mlx-lm-library", "min-tokens-of-600-hf-library"}
    lower = {*library, *(case for case in by_case if case.endswith("lower-id"))}
    assert {case for case, status in by_case.items() if status == "wrong"} == lower


@pytest.mark.parametrize(
    ("damage", "status", "words"),
    [
        ("pass", "correct", ""),
        ("bits[1, 5] ^= 1", "wrong", "bytes that differ from the first variant's is 1, must be <= 0 (wide × 1 against"),
        ("bits = bits[:1]", "error", "variants of instruction set and threads is 1"),
        ("bits = bits * 0", "error", "bytes that are not 0"),
        ("bits = bits * 0 + 7", "wrong", "bytes that one unit in the last place of an input moves"),
        (
            "bits = bits + np.random.default_rng().integers(0, 99, bits.shape[1], dtype=np.uint8)",
            "wrong",
            "between two calls",
        ),
    ],
    ids=["same", "one-bit", "one-variant", "zeros", "constant", "restless"],
)
def test_bits_are_compared_and_must_follow_the_input(tmp_path: Path, damage: str, status: str, words: str) -> None:
    """One bit fails; nothing to compare, or only zeros, is no pass; bits that ignore the input are caught."""
    for verdict in verdicts(tmp_path, VARIANTS.format(damage=damage), "isa.bits-identical", "full-kl"):
        assert verdict.status == status, verdict.reason
        assert words in verdict.reason


def test_a_kernel_that_is_not_there_is_unsupported(tmp_path: Path) -> None:
    """No silent pass for what a build lacks."""
    code = VARIANTS.format(damage="raise NotImplementedError(kernel)")
    assert {v.status for v in verdicts(tmp_path, code, "isa.bits-identical", "full-kl")} == {"unsupported"}


def test_every_kernel_has_inputs_of_its_op() -> None:
    """The names that the bits gate sends are those that the op's own table describes."""
    described = {op.name: set(op.inputs) for gate in load().gates.values() for op in gate.ops}
    rng = np.random.default_rng(0)
    for kernel, moved, make in isa.KERNELS.values():
        names = set(make(rng, "float32"))
        assert names <= described[kernel], (kernel, names - described[kernel])
        assert moved in names


#: op → file and constant: from how many numbers our kernel shares its work out among threads.
SERIAL = {"normalise_then_sum", "philox4x32_10"}  # these kernels have no threads


def constants(module: str, name: str, *, function: str = "") -> list[int]:
    """Return a module's constants whose name starts so: those of the file with this function, if it has any, else all."""
    texts = [file.read_text() for file in (ROOT / "rust" / "rlkernels" / "src" / module).glob("*.rs")]
    found = [re.findall(rf"const {name}\w*: usize = (.*);", text) for text in texts]
    own = [
        words for text, words in zip(texts, found, strict=True) if function and f"pub fn {function}<" in text and words
    ]
    parts = [word.replace("_", "").partition(" << ") for words in own or found for word in words]
    return [int(number) << int(shift or 0) for number, _, shift in parts]


def test_threads_have_work_in_every_kernel() -> None:
    """Below its threshold a kernel runs in one thread, whatever number is set: then no claim is made about threads."""
    rng = np.random.default_rng(0)
    for name, (op, moved, make) in isa.KERNELS.items():
        if op not in SERIAL:
            assert make(rng, "float32")[moved].size >= max(constants(KERNELS[op].module, "PARALLEL", function=op)), name


def test_rows_of_logits_are_cut_where_few_are_long() -> None:
    """The kernels have a path for many rows and one for the segments of a few; both are among the cases."""
    (segment,), (few,) = (constants("logsoftmax", name) for name in ("SEGMENT", "FEW_ROWS"))
    shapes = [
        make(np.random.default_rng(0), "float32")["logits"].shape
        for name, (_, _, make) in isa.KERNELS.items()
        if name.startswith("log-softmax")
    ]
    cut = [rows < few and vocabulary > segment for rows, vocabulary in shapes]
    assert set(cut) == {False, True}


def test_instruction_sets_are_subjects_where_the_machine_has_them() -> None:
    """Each variant forces one; those that this processor lacks say so and are not planned by default."""
    subjects = {name: load().subjects[f"rlkernels@{name}"] for name in catalogue.ISAS}
    assert subjects["scalar"].default
    assert subjects["neon"].default == (platform.machine().lower() in catalogue.ARM)
    for name, subject in subjects.items():
        assert subject.environment == {"RLKERNELS_ISA": name}
        assert bool(subject.why_absent) != subject.default
        assert subject.ops == catalogue.KERNELS


def test_an_instruction_set_that_is_forced_is_the_one_in_use() -> None:
    """The default variants answer, and say at the handshake what they were forced to."""
    variants = [s for s in load().subjects.values() if s.name.startswith("rlkernels@") and s.default]
    gate = load().gates["kl.k1.matches-definition"]
    found = list(run(plan([gate], variants, quick=True), Options(quick=True)))
    assert {judged.verdict.subject for judged in found} == {subject.name for subject in variants}
    for judged in found:
        assert judged.verdict.status == "correct", judged.verdict.reason
        assert judged.hello is not None
        assert f"rlkernels@{judged.hello.versions['rlkernels forced to']}" == judged.verdict.subject


def test_rounding_to_bfloat16_is_to_nearest_even() -> None:
    """The 24 bits of float32 become 8, ties to even, infinities kept."""
    values = np.array([1.0 + 2.0**-8, 1.0 + 3 * 2.0**-8, 1.0 + 2.0**-8 + 2.0**-20, -np.inf])
    assert in_dtype(values, "bfloat16").tolist() == [1.0, 1.0 + 2.0**-6, 1.0 + 2.0**-7, -np.inf]
