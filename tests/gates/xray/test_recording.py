"""Recordings are checked, and the ranks of one update are joined."""

import json
from pathlib import Path

import numpy as np
import pytest
from recordings import Made, Model, events, generated, spread, write
from scenarios import advantages, grpo, lines, row_mean, second

from gates.model import ConfigurationError
from gates.xray.picture import read
from gates.xray.recording import load


def ranks(folder: Path, *, other: float = 1.0, bins: tuple[int, int] = (1024, 1024)) -> list[Made]:
    """Record one update of two ranks that average their gradients; each has a group of its own."""
    rows = lines((7, 5, 9, 6, 4, 8, 6, 5))
    scores = advantages()
    parts = []
    for rank in (0, 1):
        mine = rows[4 * rank :][:4]
        parts.append(Made(Model.drawn(), mine, spread(mine, row_mean(mine, scores[4 * rank :][:4])), bins=bins[rank]))
    mean = (parts[0].gradient() + parts[1].gradient()) / 2
    for rank, made in enumerate(parts):
        write(folder / f"process-{rank}", made, gradient=mean * (other if rank else 1.0), rank=rank, world_size=2)
        events(folder / f"process-{rank}", generated(), rank=rank, world_size=2)
    return parts


class TestRanks:
    """Several ranks are one update."""

    @pytest.mark.parametrize("bins", [(1024, 1024), (1024, 512)], ids=["equal bins", "folded bins"])
    def test_rows_are_joined_and_coefficients_are_those_of_the_mean(
        self, bins: tuple[int, int], tmp_path: Path
    ) -> None:
        """Each rank's own loss counts 1/world_size, as the mean over all eight rows has it."""
        parts = ranks(tmp_path, bins=bins)
        shown = read(tmp_path).updates[0]
        assert len(shown.step.rows) == 8
        for index, wanted in enumerate(parts[0].coefficients + parts[1].coefficients):
            places = shown.step.own(index)
            assert shown.step.of(index, places)[0] == pytest.approx(wanted[places] / 2, rel=1e-6)
        assert shown.step.fit.unexplained < 1e-6

    def test_a_mean_over_each_ranks_own_tokens_shows(self, tmp_path: Path) -> None:
        """Each rank divides by its own tokens: then a token of the rank with fewer weighs more."""
        rows = lines((7, 5, 9, 6, 4, 8, 6, 5), group=1)
        parts = []
        for rank in (0, 1):
            mine = rows[4 * rank :][:4]
            for line in mine:
                line.seen, line.labels = False, [-100] * len(line.prompt) + line.completion + [-100] * line.padding
            parts.append(
                Made(Model.drawn(), mine, spread(mine, [-1.0 / sum(line.length for line in mine)] * 4), call=1)
            )
        mean = (parts[0].gradient() + parts[1].gradient()) / 2
        for rank, made in enumerate(parts):
            write(tmp_path / f"p{rank}", made, gradient=mean, rank=rank, world_size=2)
            events(tmp_path / f"p{rank}", rank=rank, world_size=2)
        reading = read(tmp_path).updates[0].of("between rows")
        assert reading is not None
        assert (reading.numbers["way"], reading.numbers["divided_by"]) == ("rank mean", "ranks")

    def test_equal_tokens_of_two_ranks_share_a_column(self, tmp_path: Path) -> None:
        made = grpo()
        for rank in (0, 1):
            write(tmp_path / f"p{rank}", made, rank=rank, world_size=2)
            events(tmp_path / f"p{rank}", rank=rank, world_size=2)
        shown = read(tmp_path).updates[0]
        assert len(shown.step.update.kinds) == len(made.columns()[1])
        assert shown.step.fit.inseparable == ()

    def test_ranks_with_other_gradients_are_refused(self, tmp_path: Path) -> None:
        ranks(tmp_path, other=1.1)
        with pytest.raises(ConfigurationError, match=r"rank 1 received another gradient than rank 0 \(apart by 0.09"):
            read(tmp_path)

    def test_a_missing_rank_is_named(self, tmp_path: Path) -> None:
        write(tmp_path / "p", grpo(), world_size=2)
        events(tmp_path / "p", world_size=2)
        with pytest.raises(ConfigurationError, match="rank 1 left no update"):
            read(tmp_path)

    def test_two_runs_are_refused(self, tmp_path: Path) -> None:
        for name in ("a", "b"):
            write(tmp_path / name, grpo())
            events(tmp_path / name)
        with pytest.raises(ConfigurationError, match="a and b both recorded updates as rank 0"):
            read(tmp_path)


class TestChecks:
    """What a kill cuts is named, and contradictions are refused."""

    def two(self, folder: Path) -> Path:
        for made in second(lines((7, 5, 9, 6, 4, 8, 6, 5)), advantages()):
            write(folder / "p", made)
        return events(folder / "p", generated(), updates=2)

    @pytest.mark.parametrize("name", ["update-2.json", "update-2.safetensors"])
    def test_a_file_that_a_kill_has_cut_is_named_and_left_out(self, name: str, tmp_path: Path) -> None:
        file = self.two(tmp_path) / name
        file.write_bytes(file.read_bytes()[:-100])
        shown = read(tmp_path)
        assert [picture.number for picture in shown.updates] == [1]
        assert str(file) in shown.recording.problems[0]
        assert "killed while it wrote; update 2 is left out" in shown.recording.problems[0]

    def test_nothing_but_a_cut_file_is_an_error(self, tmp_path: Path) -> None:
        write(tmp_path / "p", grpo())
        (events(tmp_path / "p") / "update-1.safetensors").write_bytes(b"")
        with pytest.raises(ConfigurationError, match=r"update-1\.safetensors is cut or missing"):
            read(tmp_path)

    def test_a_cut_event_is_named(self, tmp_path: Path) -> None:
        path = self.two(tmp_path) / "events.jsonl"
        path.write_text(path.read_text()[:-5])
        assert "events.jsonl is cut in its last line" in read(tmp_path).recording.problems[0]

    @pytest.mark.parametrize(
        ("field", "value", "message"),
        [
            ("format", 2, "format 2, must be 1"),
            ("bins", 1000, "1000 bins, must be a power of 2"),
            ("keys", ["a"], "1 keys, must be 63"),
            ("optimizer", None, "field `optimizer`"),
            ("scorers", [{"by": "another model"}], "no array `scored.0`"),
        ],
    )
    def test_contradictions_name_file_and_field(self, field: str, value: object, message: str, tmp_path: Path) -> None:
        made = grpo()
        made.document = {field: value}
        write(tmp_path / "p", made)
        events(tmp_path / "p")
        with pytest.raises(ConfigurationError, match=message) as error:
            read(tmp_path)
        assert "update-1.json" in str(error.value)

    def test_rows_are_checked(self, tmp_path: Path) -> None:
        write(tmp_path / "p", grpo())
        path = events(tmp_path / "p") / "update-1.json"
        document = json.loads(path.read_text())
        document["rows"][3]["columns"][2] = 99
        path.write_text(json.dumps(document))
        with pytest.raises(ConfigurationError, match="row 3: a column outside of -1 to 62"):
            read(tmp_path)

    def test_an_infinite_gradient_is_left_out(self, tmp_path: Path) -> None:
        made = grpo()
        made.extra = np.where(np.arange(made.model.flat.size) == 0, np.inf, 0.0)
        write(tmp_path / "p", made)
        events(tmp_path / "p")
        with pytest.raises(ConfigurationError, match="update 1 is left out: its gradient is NaN or infinite"):
            read(tmp_path)

    def test_a_folder_without_recording_says_what_to_do(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigurationError, match="no process made an optimizer step that Gates saw"):
            read(tmp_path)
        with pytest.raises(ConfigurationError, match="is no folder"):
            read(tmp_path / "none")

    def test_what_could_not_be_recorded_is_kept(self, tmp_path: Path) -> None:
        events(tmp_path / "p", {"event": "cannot", "reason": "the parameters are sharded: run one process"})
        shown = load(tmp_path)
        assert (shown.updates, shown.cannot) == ((), ("the parameters are sharded: run one process",))
