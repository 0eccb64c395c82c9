"""Handmade records of speed, and files of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from gates.results.jsonl import Writer
from gates.results.records import EvidenceRecord, Machine
from gates.results.speed_file import SpeedResults, read_speed
from gates.results.speed_records import (
    Bandwidth,
    ComparisonRecord,
    Interval,
    Peak,
    RooflineRecord,
    SpeedHeader,
    SpeedRecord,
    SpeedSummary,
    Times,
    TrainerRecord,
)

RESULTS = Path(__file__).resolve().parents[2] / "results"
HEADER = SpeedHeader(
    kind="kernels",
    command=["gates", "bench", "kernels"],
    started="2026-11-21T00:00:00+00:00",
    commit="0" * 40,
    dirty=False,
    machine=Machine(system="s", cpu="c", cores=2, features=["avx512f"]),
    python="3",
    build={"profile": "release", "features": ["avx512f", "fma"]},
    threads=2,
    quick=False,
    busy_percent=0.0,
    planned=3,
)
ROOFLINE = RooflineRecord(
    when="before",
    bandwidth=[
        Bandwidth(threads=threads, level=level, bytes=1, reading=1e11 * threads, copying=5e10 * threads)
        for threads in (1, 2)
        for level in ("l1", "l2", "l3", "memory")
    ],
    peak=[Peak(threads=threads, float32=2e11 * threads, float64=1e11 * threads) for threads in (1, 2)],
)
RIGHT = EvidenceRecord(
    quantity="error", observed=0.5, relation="<=", limit=1.0, because="derived", where="", role="claim", holds=True
)
WRONG = replace(RIGHT, quantity="k3 | inverted", observed=float("inf"), holds=False)
FAIR = Interval(value=1.0, low=0.99, high=1.01)
ADVANTAGES = ("16x4", "64x8", "256x16", "1024x32")
WITHOUT: dict[str, Any] = {"ours": None, "theirs": None, "ratio": None, "control": None, "pairs": 0, "processes": 0}


def kernel(times: float = 5.0, **changes: Any) -> SpeedRecord:
    facts: dict[str, Any] = {
        "op": "group_advantages",
        "shape": "16x4",
        "peer": "rlox",
        "outcome": "timed",
        "evidence": [RIGHT],
        "pairs": 30,
        "processes": 3,
        "threads": 2,
        "isa": "avx512",
        "ours": Times(statement="f(x)", calls=10, median_us=10.0, low_us=9.0),
        "theirs": Times(statement="g(x)", calls=1, median_us=10.0 * times, low_us=9.0 * times),
        "ratio": Interval(value=times, low=0.9 * times, high=1.1 * times),
        "control": FAIR,
        "reads": 512,
        "writes": 512,
        "flops": 320.0,
    }
    return SpeedRecord(**facts | changes)


def trainer(step: float = 2.0, **changes: Any) -> TrainerRecord:
    facts: dict[str, Any] = {
        "target": "reference",
        "workload": "geometric",
        "model": "tiny 32-bit",
        "outcome": "timed",
        "comparison": "same semantics",
        "entry": "train(config)",
        "versions": {"mlx": "0.32.4"},
        "settings": {"top_p": 0.95},
        "rollout_tokens_per_s": Interval(value=100.0, low=99.0, high=101.0),
        "gradient_s": Interval(value=0.5, low=0.4, high=0.6),
        "step_s": Interval(value=step, low=step, high=step),
        "samples_per_s": Interval(value=4 / step, low=4 / step, high=4 / step),
        "iterations_per_s": Interval(value=1 / step, low=1 / step, high=1 / step),
        "peak_memory_bytes": 2_000_000_000,
        "peak_rss_bytes": 3_000_000_000,
        "generated_tokens": 192,
        "forward_tokens": 600,
        "control": FAIR,
    }
    return TrainerRecord(**facts | changes)


REFUSED = kernel(outcome="peer wrong", reason="it is inverted", evidence=[WRONG], **WITHOUT)
CALLED_WRONG = kernel(op="token_kl", shape="1x128", conformance="wrong", times=77.0)
COMPARED = ComparisonRecord(
    benchmark="k3 32x512", left="aaaa", right="bbbb", outcome="timed", pairs=20, left_us=5.0, right_us=5.5,
    ratio=Interval(value=1.1, low=1.08, high=1.12), control=FAIR, floor=0.02, verdict="slower",
)  # fmt: skip


def written(
    folder: Path, *records: Any, name: str = "speed.jsonl", absent: tuple[str, ...] = (), **header: Any
) -> SpeedResults:
    """Write a complete run of the records to `folder`/bench and read it back."""
    writer = Writer(folder / "bench" / name)
    counts = {record.outcome: 1 for record in records}
    for record in (HEADER.model_copy(update=header), ROOFLINE, *records):
        writer.write(record)
    writer.write(SpeedSummary(counts=counts, absent=list(absent), seconds=2.0))
    writer.close()
    return read_speed(writer.path)


def full_size(folder: Path) -> list[SpeedResults]:
    """Return the largest runs to expect: about 90 rows of kernels, 25 of trainers, 30 of a comparison."""
    shapes = ("1x128", "1x512", "1x2048", "1x8192", "32x128", "32x512", "32x2048")
    rows = [kernel(op="token_kl", variant="k3", shape=s, peer=p) for s in shapes for p in ("torch", "NumPy", "verl")]
    for shape in ADVANTAGES:
        rows += [kernel(shape=shape, peer=p) for p in ("rlox", "trl", "torch", "NumPy", "verl", "mlxrl")]
    for op in ("selective_log_softmax", "sample_tokens", "filtered_logprobs"):
        for shape in ("4x4096-peaked", "16x151936-peaked", "16x151936-flat"):
            rows += [kernel(op=op, variant=v, shape=shape, peer="trl") for v in ("top-p", "top-k", "both")]
    for n in range(20):
        rows.append(kernel(op="policy_loss", variant=f"case {n // 2}", shape=("4x64", "32x2048")[n % 2], peer="trl"))
    targets = ("reference", "mlxrl", "mlx-lm", "mlx-tune", "mlx-lm-lora")
    trainers = [
        trainer(target=t, workload=w, settings={f"s{n}": t for n in range(20)}, ratio=FAIR)
        for w in ("a", "b", "c", "d", "e")
        for t in targets
    ]
    refused = [
        kernel(peer=f"peer{n // 4}", shape=ADVANTAGES[n % 4], outcome="error", reason=f"reason {n}", **WITHOUT)
        for n in range(24)
    ]
    compared = [COMPARED.model_copy(update={"benchmark": f"b{n}"}) for n in range(30)]
    return [
        written(folder, *rows, name="a.jsonl"),
        written(folder, *refused, name="r.jsonl"),
        written(folder, *trainers, name="b.jsonl", kind="trainers"),
        written(folder, *compared, name="c.jsonl", kind="comparison"),
    ]
