"""Speed files: valid, readable after an interruption, and rendered as markdown by a pure function."""

import json
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from speeds import COMPARED, FAIR, REFUSED, RESULTS, ROOFLINE, full_size, kernel, trainer, written

from gates.model import ConfigurationError
from gates.report.speed.html import render_page
from gates.report.speed.markdown import render_speed
from gates.report.speed.recorded import gather
from gates.report.speed_summary import speed_summary
from gates.results.speed_file import SpeedResults, bound, read_speed
from gates.results.speed_records import Interval, Times

Make = Callable[..., SpeedResults]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Return a function that writes a complete run and reads it back."""
    return partial(written, tmp_path)


@pytest.fixture
def full(tmp_path: Path) -> list[SpeedResults]:
    """Return the largest runs to expect."""
    return full_size(tmp_path)


def line_of(text: str, start: str) -> str:
    (match,) = [line for line in text.splitlines() if line.startswith(start)]
    return match


class TestFile:
    """Writing and reading a file."""

    def test_every_line_matches_the_published_schema(self, make: Make) -> None:
        """Lines are strict JSON that validates, with infinity as a string."""
        published = json.loads((RESULTS / "speed-schema.json").read_text())
        run = make(kernel(), REFUSED, trainer(), COMPARED)
        for line in run.path.read_text().splitlines():
            jsonschema.validate(
                json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is no JSON")), published
            )

    def test_an_interrupted_run_reports_its_progress(self, make: Make) -> None:
        """A torn last line is ignored, and the report marks the run as inconclusive."""
        path = make(kernel(), REFUSED).path
        lines = path.read_bytes().splitlines(keepends=True)
        path.write_bytes(b"".join(lines[:3]) + lines[3][:20])
        run = read_speed(path)
        assert run.state == "incomplete: 1 of 3"
        assert "incomplete: 1 of 3: conclude nothing" in render_speed([run])

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("", "no complete line"),
            ("{}\n", "no speed record"),
            (kernel().model_dump_json() + "\n", "must be a speed-header"),
            ('{"record": "speed-header", "format": 1}\n', "is of format 1, this version reads format 2"),
        ],
        ids=["empty", "no record", "no header", "older format"],
    )
    def test_other_files_are_refused(self, tmp_path: Path, text: str, message: str) -> None:
        (tmp_path / "x.jsonl").write_text(text)
        with pytest.raises(ConfigurationError, match=message):
            read_speed(tmp_path / "x.jsonl")

    def test_a_second_header_is_refused(self, make: Make) -> None:
        path = make(kernel()).path
        lines = path.read_bytes().splitlines(keepends=True)
        path.write_bytes(lines[0] + lines[0])
        with pytest.raises(ConfigurationError, match=r"speed\.jsonl:2 is a second header"):
            read_speed(path)


class TestBound:
    """The roofline of a row, against values computed by hand."""

    @pytest.mark.parametrize(
        ("work", "threads", "limited_by", "microseconds"),
        [
            ({"reads": 20_000, "writes": 0}, 1, "l1", 0.2),
            ({"reads": 100_000_000, "writes": 40_000_000}, 2, "memory", 1100.0),
            ({"reads": 8, "writes": 0, "flops": 1e6, "precision": "float64"}, 1, "arithmetic", 10.0),
        ],
        ids=["small data use one thread", "writes count as copies", "arithmetic is the limit"],
    )
    def test_the_roofline_is_the_slower_resource(
        self, work: dict[str, Any], threads: int, limited_by: str, microseconds: float
    ) -> None:
        """The longer of moving the bytes and doing the operations, at the best rates measured."""
        roofline = bound(kernel(**{"flops": 0.0, **work}), [ROOFLINE])
        assert roofline is not None
        assert (roofline.threads, roofline.limited_by) == (threads, limited_by)
        assert roofline.microseconds == pytest.approx(microseconds)

    def test_the_faster_of_two_measurements_counts(self) -> None:
        """A roofline measured on a busy machine must not flatter rlkernels."""
        faster = ROOFLINE.model_copy(
            update={"bandwidth": [b.model_copy(update={"reading": 10 * b.reading}) for b in ROOFLINE.bandwidth]}
        )
        roofline = bound(kernel(reads=20_000, writes=0, flops=0.0), [ROOFLINE, faster])
        assert roofline is not None
        assert roofline.microseconds == pytest.approx(0.02)

    def test_without_rates_or_bytes_there_is_no_roofline(self) -> None:
        """The report then shows no share of the roofline."""
        assert bound(kernel(), []) is None
        assert bound(kernel(reads=0, writes=0), [ROOFLINE]) is None


class TestMarkdown:
    """The report that is recorded."""

    def test_a_row_has_time_ratio_interval_control_and_published_times(self, make: Make) -> None:
        """Published times name their source, and a list below the table describes it."""
        text = render_speed([make(kernel())])
        published = "A: rlox 0.5, TRL-style 6.5, NumPy 5.9; B: rlox 1.3, TRL 34.1; C: rlox 2.2, NumPy 79, torch 76.2"
        row = f"| 16 × 4 | 10 | 50 µs, 5× [4.5–5.5] | {published} | 1 [0.99–1.01] | 0% (l1) |"
        assert line_of(text, "| 16 × 4") == row
        assert "- A, published elsewhere and not measured here: rlox documentation" in text

    def test_the_summary_has_ranges_and_a_control(self, make: Make) -> None:
        """A cell has the range of the estimates, the outermost ends of the intervals, and outcomes of untimed rows."""
        rows = [kernel(2.0), kernel(70.0, shape="64x8"), REFUSED.model_copy(update={"shape": "256x16"})]
        text = render_speed([make(*rows)])
        assert "| rlox | 2–70 [1.8–77], **peer wrong** |" in text
        assert "| **control: rlkernels against itself** | 1–1 [0.99–1.01] |" in text.replace("1 [0.99", "1–1 [0.99")

    def test_a_refused_peer_shows_its_outcome_and_evidence(self, make: Make) -> None:
        """The table has the outcome, the section of rows without a time the evidence."""
        text = render_speed([make(REFUSED, absent=("verl",))])
        assert "| 16 × 4 | – | **peer wrong** |" in text
        assert "peer wrong**: it is inverted; k3 \\| inverted is inf, must be <= 1 (derived)" in text
        assert "Peers without an environment on this machine: verl." in text

    def test_the_summary_names_faster_peers(self, make: Make) -> None:
        text = render_speed([make(kernel(0.5), kernel(1.0, shape="64x8"), kernel(2.0, shape="256x16"))])
        assert "of 3 timings, rlkernels is faster in 1 and the peer in 1; in 1 the 95% interval includes 1." in text
        better = [trainer(target=t, ratio=Interval(value=r, low=r, high=r)) for t, r in (("trl", 0.8), ("mlxrl", 2.0))]
        counts = "Trainers, 2 timings of 2 trainers against the reference trainer: slower in 1, faster in 1."
        assert counts in render_speed([make(trainer(), *better, name="t.jsonl", kind="trainers")])
        assert "The peer is faster in rlox `group_advantages` 16x4 0.5 [0.45–0.55]" in text

    def test_recorded_counts_add_up(self) -> None:
        """Timings by whom they favour, and rows without a time by outcome and in their own section."""
        runs = [read_speed(path) for path in sorted((RESULTS / "bench").glob("*.jsonl"))]
        recorded, text = gather(runs), render_speed(runs)
        summary = text.partition("## How")[0]
        timed = [row.row.ratio for row in recorded.kernels if row.shown and row.row.ratio]
        (total,) = re.findall(r"rlkernels is faster in all (\d+) timings", summary)
        assert int(total) == len(timed) == sum(ratio.low > 1 for ratio in timed)
        (line,) = re.findall(r"Trainers, (\d+) timings.*?: slower in (\d+), faster in (\d+); in (\d+) the", summary)
        assert int(line[0]) == sum(map(int, line[1:]))
        (rows, parts) = re.findall(r"Without a time: (\d+) rows, (.*)\.", summary)[0]
        assert int(rows) == sum(map(int, re.findall(r"(\d+) \S*\*\*", parts)))
        listed = text.partition("## Rows without a time")[2].partition("## ")[0].splitlines()[2:]
        counted = [re.search(r", (\d+) rows: ", item) for item in listed if item.startswith("- ")]
        assert int(rows) == sum(int(found[1]) if found else 1 for found in counted)

    def test_noisy_rows_are_counted(self, make: Make) -> None:
        """A row is noisy if its control is far from 1 or other processes used the CPU."""
        noisy = kernel(shape="64x8", control=Interval(value=1.2, low=1.1, high=1.3))
        busy = kernel(shape="256x16", busy_percent=40.0)
        text = render_speed([make(kernel(busy_percent=2.0), noisy, busy)])
        assert "rlkernels is faster in all 3 timings. 2 of the 3 are noisy: " in text

    def test_peers_with_one_convention_each_share_a_row(self, make: Make) -> None:
        apart = [kernel(variant="ddof 0"), kernel(variant="ddof 1", peer="trl")]
        both = [kernel(op="policy_loss", variant=f"beta {b}", shape="32x2048", peer="trl") for b in (0, 1)]
        text = render_speed([make(*apart, *both)])
        assert "| shape | rlkernels, µs | rlox | trl |" in text
        assert line_of(text, "| `policy_loss beta 0`").count("50 µs") == 1

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"quick": True}, "a smoke test"),
            ({"busy_percent": 40.0}, "other processes used 40% of the CPU"),
            ({"dirty": True}, "tracked files differed from the commit"),
            ({}, ""),
        ],
        ids=["quick", "busy", "dirty", "none"],
    )
    def test_inconclusive_runs_are_marked(self, make: Make, changes: dict[str, Any], message: str) -> None:
        text = render_speed([make(kernel(), **changes)])
        assert message in text
        assert ("**Conclude nothing** from `speed.jsonl`" in text) == bool(message)

    def test_savings_are_relative_to_a_step(self, make: Make) -> None:
        """Advantages of 16 × 4 save 40 µs, of a published step of 2.71 s and of a reference step of 2 s."""
        runs = [make(kernel()), make(trainer(), name="t.jsonl", kind="trainers")]
        row = "| `group_advantages` | 1 call of 16 × 4 | 40 µs | 0.0015% | 0.002% | negligible |"
        assert row in render_speed(runs)

    def test_savings_of_sampling_count_every_token(self, make: Make) -> None:
        """The published step has 64 × 512 tokens, 16 per call; a step with a tiny vocabulary gets no share."""
        ours, theirs = (Times(statement="s", calls=1, median_us=us, low_us=us) for us in (1000.0, 2000.0))
        runs = [
            make(kernel(op="sample_tokens", shape="16x151936-flat", peer="mlx-lm", ours=ours, theirs=theirs)),
            make(trainer(), name="t.jsonl", kind="trainers"),
        ]
        row = "| `sample_tokens` | 2,050 calls of 16 × 151,936 | 2.05 s | 76% | – | only where the logits are on the CPU |"
        assert row in render_speed(runs)

    def test_a_saving_longer_than_the_step_is_no_share_of_it(self, make: Make) -> None:
        """A peer that samples for 20 s a step on this CPU does not save seven steps."""
        ours, theirs = (Times(statement="s", calls=1, median_us=us, low_us=us) for us in (1000.0, 11_000.0))
        text = render_speed(
            [make(kernel(op="sample_tokens", shape="16x151936-flat", peer="mlx-lm", ours=ours, theirs=theirs))]
        )
        assert "| 20.5 s | more than the step | – | only where the logits are on the CPU |" in text
        assert "of 2.71 s, at most** | more than the step, but only where the logits are on the CPU |" in text

    def test_trainers_and_the_published_row(self, make: Make) -> None:
        """The reference first; settings that differ are listed; the published row is marked."""
        slow = trainer(4.0, target="mlxrl", settings={"top_p": 1.0}, ratio=Interval(value=2.0, low=1.9, high=2.1))
        text = render_speed([make(slow, trainer(), kind="trainers")])
        rows = [line for line in text.splitlines() if line.startswith(("| `reference`", "| `mlxrl`"))]
        assert rows[0].endswith("| 100 | 0.5 | 2 | 0.5 | 2.00 / 3.00 | 1 | 1 [0.99–1.01] |")
        assert rows[1].endswith("| 2.00 / 3.00 | 2 [1.9–2.1] | 1 [0.99–1.01] |")
        assert "as published, not measured here" in rows[2]
        assert "454.1 | 1.282 | 1.133 | 0.283 | 6.25 / –" in rows[2]
        assert "- `top_p`: 0.95 (reference); 1 (mlxrl)." in text

    def test_the_newest_row_on_the_best_instruction_set_counts(self, make: Make) -> None:
        """The order of files is irrelevant; a later run on AVX2 or a smoke test replaces no row."""
        runs = [
            make(kernel(9.0), name="quick.jsonl", started="2026-11-24", quick=True),
            make(kernel(3.0, isa="avx2"), name="avx2.jsonl", started="2026-11-23"),
            make(kernel(7.0), name="new.jsonl", started="2026-11-22"),
            make(kernel(5.0), name="old.jsonl", started="2026-11-21"),
        ]
        assert "| rlox | 7 [6.3–7.7] |" in speed_summary(runs)

    def test_the_history_comes_from_asv(self, make: Make, tmp_path: Path) -> None:
        """There is one row per commit; files of another format are skipped."""
        folder = tmp_path / "asv" / "here"
        folder.mkdir(parents=True)
        calls = ["'token_kl k3 1x128'", "'token_kl k3 256x4096'", "'gae'", "'policy_loss grpo'"]
        results = {"kernels.Kernels.time_call": [[1e-6, 5e-5, 1.0, float("nan")], [calls]]}
        commit = {"commit_hash": "c" * 40, "date": 1795350289000, "params": {"machine": "here"}}
        document = commit | {"result_columns": ["result", "params"], "results": results}
        (folder / "c.json").write_text(json.dumps(document))
        (folder / "machine.json").write_text("{}")
        text = render_speed([make(COMPARED, kind="comparison")])
        assert line_of(text, "| cccccccc") == "| cccccccc, 2026-11-22, the only commit recorded | 50 µs |"
        assert "| `k3 32x512` | 5 → 5.5 | 1.1 [1.08–1.12] | 1 [0.99–1.01] | **slower** |" in text

    def test_the_report_has_at_most_200_lines(self, full: list[SpeedResults]) -> None:
        """This holds for the largest runs too; the summary comes first and fits on a screen."""
        lines = render_speed(full).splitlines()
        assert len(lines) <= 200
        assert lines.index("## How it was measured, and our bias") < 30

    def test_many_trainers_are_shown_as_one_row_per_workload(self, make: Make, full: list[SpeedResults]) -> None:
        """The page has every measurement, the markdown those of the first workload of each model."""
        targets = ("reference", "mlxrl", "mlx-lm", "mlx-tune", "mlx-lm-lora", "trl", "mlxrl-cli")
        rows = [
            trainer(target=t, workload=w, model=m, ratio=FAIR)
            for m in ("tiny 32-bit", "ten 32-bit")
            for w in ("first", "second", "third", "fourth", "fifth")
            for t in targets
        ]
        runs = [full[0], make(*rows, name="many.jsonl", kind="trainers")]
        text = render_speed(runs)
        assert len(text.splitlines()) <= 200
        assert text.count("| `trl` | same semantics | ten 32-bit, first |") == 1
        assert line_of(text, "| ten 32-bit, fifth |").count("1 [0.99–1.01]") == len(targets)
        assert render_page(runs).count("<code>trl</code></th>") == 10

    def test_the_recorded_report_is_short(self) -> None:
        """results/SPEED.md has at most 200 lines; `make generate` writes it."""
        assert len((RESULTS / "SPEED.md").read_text().splitlines()) <= 200


class TestSummary:
    """The short table that docs/benchmarks.md holds."""

    def test_a_peer_is_a_row_and_an_op_a_column(self, make: Make) -> None:
        rows = [kernel(2.0), kernel(70.0, shape="64x8"), kernel(op="pack_sequences", shape="1000", peer="trl")]
        assert speed_summary([make(*rows)]).splitlines() == [
            "| times faster than | `group_advantages` | `pack_sequences` |",
            "| --- | --- | --- |",
            "| rlox | 2–70 [1.8–77] |  |",
            "| trl |  | 5 [4.5–5.5] |",
            "| **control: rlkernels against itself** | 1 [0.99–1.01] | 1 [0.99–1.01] |",
        ]

    def test_the_summary_is_short(self, full: list[SpeedResults]) -> None:
        """It has at most 20 lines, for peers with a time or a grade."""
        assert len(speed_summary(full[:1]).splitlines()) <= 20
