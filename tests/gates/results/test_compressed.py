"""Recorded runs are kept as gzip: the same records, and one sentence for a damaged file."""

import gzip
from pathlib import Path

import pytest
from records import header, whole
from typer.testing import CliRunner

from gates.cli.verbs import app
from gates.model import ConfigurationError
from gates.results.jsonl import Writer, compress, read

CELL = ("g.one", "s", "c")


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    """Write a compressed run of one verdict."""
    writer = Writer(tmp_path / "run.jsonl")
    for record in whole([CELL], header([CELL])):
        writer.write(record)
    writer.close()
    return compress(tmp_path / "run.jsonl")


def test_compression_keeps_the_records(packed: Path) -> None:
    """The records are equal and the uncompressed file is removed."""
    assert packed.name == "run.jsonl.gz"
    assert [path.name for path in packed.parent.iterdir()] == ["run.jsonl.gz"]
    assert len(read(packed).verdicts) == 1


def test_the_same_run_gives_the_same_bytes(packed: Path, tmp_path: Path) -> None:
    """The gzip header has no time stamp."""
    before = packed.read_bytes()
    again = tmp_path / "again.jsonl"
    again.write_bytes(gzip.decompress(before))
    assert compress(again).read_bytes() == before


@pytest.mark.parametrize("damage", [lambda data: data[:-9], lambda data: b"{}\n" + data], ids=["cut", "no-gzip"])
def test_a_damaged_file_is_one_sentence(packed: Path, damage: object) -> None:
    packed.write_bytes(damage(packed.read_bytes()))  # type: ignore[operator]
    with pytest.raises(ConfigurationError, match=r"run\.jsonl\.gz: is not gzip to its end"):
        read(packed)


def test_a_recorded_check_ends_compressed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its path is the last line on standard error."""
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["check", "kl.k1", "--quick", "--subject", "numpy", "--record", "--jobs", "1"])
    assert done.exit_code == 0, done.output
    (file,) = (tmp_path / "results" / "gates").iterdir()
    assert file.name.endswith(".jsonl.gz")
    assert str(file.relative_to(tmp_path)) in done.stderr
    assert read(file).state == "complete"
