"""A line that is no record: what is wrong in our own words, and what to do."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from runs_on_file import verdict, write

from gates.errors import ConfigurationError
from gates.results.jsonl import read

DAMAGED = "the file is damaged: copy it again, or keep what stands before (head -n 1 {path} > COPY) and go on with --resume COPY"
NEWER = "which this version does not know; read it with the version of Gates that wrote it"


def changed(change: Callable[[dict[str, object]], object]) -> Callable[[str], str]:
    """Return a change of a line's JSON."""

    def apply(line: str) -> str:
        record = json.loads(line)
        change(record)
        return json.dumps(record)

    return apply


LINES: dict[str, tuple[Callable[[str], str], str]] = {
    "torn": (lambda line: line[:40], f"it is not JSON; {DAMAGED}"),
    "a list": (lambda _: "[1]", f"it must be an object whose `record` says what it is; {DAMAGED}"),
    "without its type": (
        changed(lambda r: r.pop("record")),
        f"it must be an object whose `record` says what it is; {DAMAGED}",
    ),
    "another type": (changed(lambda r: r.update(record="verdikt")), f"its `record` is 'verdikt', {NEWER}"),
    "without a field": (changed(lambda r: r.pop("gate")), f"it lacks `verdict.gate`; {DAMAGED}"),
    "a further field": (changed(lambda r: r.update(colour="red")), f"it has `verdict.colour`, {NEWER}"),
    "a number for text": (changed(lambda r: r.update(gate=1)), f"`verdict.gate` is 1, must be text; {DAMAGED}"),
}


@pytest.mark.parametrize("name", LINES)
def test_a_damaged_line_is_described_with_a_remedy(name: str, tmp_path: Path) -> None:
    change, message = LINES[name]
    path = write(tmp_path / "run.jsonl", [verdict()]).path
    head, line, *rest = path.read_text().splitlines()
    path.write_text("\n".join([head, change(line), *rest, ""]))
    with pytest.raises(ConfigurationError) as error:
        read(path)
    assert str(error.value) == f"{path}:2 is no record of Gates: {message.format(path=path)}"


def test_a_file_of_something_else(tmp_path: Path) -> None:
    """Its first line is no header: the remedy is to name another file."""
    (tmp_path / "notes.txt").write_text("notes\n")
    with pytest.raises(ConfigurationError, match=r"it is not JSON; name a results file: `gates check` writes them to"):
        read(tmp_path / "notes.txt")


def test_of_a_compressed_file_no_line_can_be_cut(tmp_path: Path) -> None:
    path = write(tmp_path / "run.jsonl", [verdict()]).path
    packed = tmp_path / "run.jsonl.gz"
    packed.write_bytes(gzip.compress(path.read_bytes().splitlines(keepends=True)[0] + b"{\n"))
    with pytest.raises(ConfigurationError, match=r"gz:2 .* it is not JSON; copy the file again, whole, or judge again"):
        read(packed)
