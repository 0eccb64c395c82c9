"""A run of twenty thousand verdicts in every form."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from memory import PEAK
from runs_on_file import verdict, write

ROOT = Path(__file__).resolve().parents[3]
COUNT = 20_000


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of twenty thousand verdicts with six pieces of evidence each, as in recorded runs: 48 MB."""
    folder = tmp_path_factory.mktemp("large")
    text = verdict("correct").model_dump(mode="json")
    with (folder / "large.jsonl").open("w") as file:
        whole = write(folder / "small.jsonl", [verdict()], complete=False, planned=COUNT)
        file.write(whole.header.model_dump_json() + "\n")
        because = "one rounding of every operation, times the condition of the sum, as derived in the text " * 2
        for number in range(COUNT):
            rest, case = divmod(number, 100)
            subject, gate = divmod(rest, 100)
            item = {**text["evidence"][0], "because": because}
            items = [
                {**item, "observed": item["limit"] / (number + 7.0 + k), "where": f"at [{number}, {k}]: got 1.5"}
                for k in range(6)
            ]
            names = {"gate": f"family{gate % 10}.gate-{gate}", "subject": f"subject-{subject}", "case": f"case-{case}"}
            file.write(json.dumps({**text, **names, "evidence": items}) + "\n")
    return folder / "large.jsonl"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("form", "least"),
    [("text", 100), ("github", 100), ("md", 1e4), ("html", 2e6), ("junit", 1e7), ("json", 4e7), ("jsonl", 4e7)],
)
def test_twenty_thousand_verdicts(large: Path, tmp_path: Path, form: str, least: float) -> None:
    """At most 3 s of processor time, JUnit 6, and 512 MiB of memory in every form; a run of today has half of these verdicts.

    junitparser, a library, takes three times as long as text that is joined. Processor time, for other programs may be running; it is that of the whole command, start included.
    """
    code = PEAK + (
        "from gates import cli\ntry:\n    cli.main()\nexcept SystemExit as ended:\n"
        "    assert not ended.code\nused = resource.getrusage(resource.RUSAGE_SELF)\n"
        "print(used.ru_utime + used.ru_stime, peak())\n"
    )
    out = tmp_path / "out"
    command = [sys.executable, "-c", code, "report", str(large), "--format", form, "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    seconds, memory = map(float, done.stdout.split())
    assert out.stat().st_size > least
    assert seconds < (6.0 if form == "junit" else 3.0)
    assert memory < 2.0**29
