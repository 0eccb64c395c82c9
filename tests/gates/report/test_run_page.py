"""The first screen of the page of a run: who, when, what came out, and each op with its cause and its smallest input."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chromium import Browser, shown, wrong
from pages import Elements
from runs_on_file import HOSTILE, smallest, verdict, write

from gates.report.html import render_html
from gates.report.small_input import small_input
from gates.results.records import DiagnosisRecord, SubjectRecord
from gates.shrink.file import Counterexample
from gates.shrink.file import write as write_counterexample

MEASURED = "kl error in textbook limits: completion 1 of 1: got 0.71, want 0.36; inputs there: policy 0, reference -1"
FILE = "run.counterexamples/kl.safetensors"


def counterexample(**inputs: Any) -> Counterexample:
    return Counterexample(
        gate="kl.k3.matches-definition",
        case="some",
        seed=7,
        subject="mine",
        entry="mine.py",
        kind="claim definition",
        reason="kl is wrong",
        words=MEASURED,
        elements_before=900,
        elements_after=2,
        unit="numbers",
        finished=True,
        judged_beside=None,
        quick=True,
        tool="rl-gates 0",
        inputs=inputs,
    )


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A subject with a wrong op that was diagnosed and shrunk, a fragile one and a correct one."""
    gates = ("kl.k3.matches-definition", "kl.full.matches-definition", "advantages.matches-definition")
    verdicts = [
        verdict("wrong", gate=gates[0], op="token_kl[k3]"),
        verdict("fragile", gate=gates[1], op="full_kl", case="impossible-500"),
        verdict(gate=gates[2], op="group_advantages"),
    ]
    diagnosis = DiagnosisRecord(
        subject="mine",
        op="token_kl[k3]",
        gate=gates[0],
        case="some",
        kind="mistake",
        computes="policy and reference exchanged",
        rho=0.1,
        next_rho=30.0,
        tried=57,
        inputs=8,
        seconds=0.1,
    )
    small = smallest("some", gate=gates[0], words=MEASURED, file=FILE)
    said = SubjectRecord(subject="mine", provides=[], versions={"mine": "1.2", "numpy": "2"})
    return write(tmp_path / "run.jsonl", verdicts, also=[said, diagnosis, small]).path


def first_screen(path: Path) -> str:
    """Return the text above the contents, without the fold of the run."""
    body = render_html([path]).partition("<body>")[2]
    text = re.split('<nav class="contents"|<section aria-labelledby="verdicts"', body)[0]
    text = re.sub(r'<details class="box">.*?</details>', "", text, flags=re.DOTALL)
    return " ".join(" ".join(data for _, data in Elements(text).texts).split())


class TestFirstScreen:
    """What stands above everything else."""

    def test_who_when_and_what_came_out(self, run: Path) -> None:
        words = first_screen(run)
        assert words.index("mine 1.2") < words.index("2026-11-21 00:00 UTC") < words.index("Exit code 1.")
        assert "Exit code 1. Not all held: 1 wrong" in words

    def test_ops_with_cause_and_counterexample(self, run: Path) -> None:
        """The worst first, each with what it computes or the rare input; then the correct ones."""
        words = first_screen(run)
        order = ["✗ wrong token_kl[k3]", "computes: policy and reference exchanged", "got 0.71", "want 0.36"]
        order += [f"gates replay {FILE}", "△ fragile full_kl", "fails on a rare input: tokens of probability 0"]
        order += ["✓ correct group_advantages"]
        places = [words.index(part) for part in order]
        assert places == sorted(places)

    def test_no_counts_of_cases(self, run: Path) -> None:
        """They are in the fold of the run, and in the table of gates."""
        assert not re.search(r"\d+ cases?\b", first_screen(run))
        assert "3 of 3 cases judged" in " ".join(Elements(render_html([run])).text("dd").split())

    def test_definitions_are_on_the_page(self, run: Path) -> None:
        """Formula, source and question in a fold of the op; the correct one links to its definition."""
        text = render_html([run])
        assert '<a href="#op-group_advantages"><code>group_advantages</code></a>' in text
        page = Elements(text)
        assert "op-group_advantages" in {attributes.get("id") for _, attributes in page.found}
        said = page.text("dd") + page.text("code")
        assert said.count("k3 = exp(d) − d − 1") == 3  # in its fold, in the list, and in the question of its gate
        assert "J. Schulman" in said

    def test_several_runs_have_sections(self, run: Path, mixed: list[Path]) -> None:
        """Checks stand before proofs, in the order of the files."""
        page = Elements(render_html([mixed[1], run, mixed[0]]))
        heads = [str(attributes["id"]) for tag, attributes in page.found if tag == "h2" and "id" in attributes]
        assert heads[:3] == ["run-2", "run-3", "run-1"]
        assert "Gates: 3 recorded runs" in page.text("h1")

    def test_an_incomplete_run(self, tmp_path: Path) -> None:
        cut = write(tmp_path / "cut.jsonl", [verdict()], complete=False, planned=9)
        assert "✗ incomplete: 1 of 9" in first_screen(cut.path)


class TestSmallInput:
    """The table of a counterexample."""

    def test_arguments_come_from_the_file(self, tmp_path: Path) -> None:
        """As `gates replay` will use them, without those that are None."""
        (tmp_path / "run.counterexamples").mkdir()
        values = {"policy": np.zeros(1, "f4"), "reference": np.full(1, -1.0, "f4"), "mask": None, "estimator": "k3"}
        write_counterexample(tmp_path / FILE, counterexample(**values))
        table = small_input(smallest(words=MEASURED, file=FILE), tmp_path)
        assert table is not None
        assert table.rows == (("policy", "[0.0]"), ("reference", "[-1.0]"), ("estimator", "'k3'"))
        assert (table.where, table.got, table.want) == ("completion 1 of 1", "0.71", "0.36")

    def test_without_the_file_they_come_from_the_words(self, tmp_path: Path) -> None:
        table = small_input(smallest(words=MEASURED, file=FILE), tmp_path)
        assert table is not None
        assert table.rows == (("policy", "0"), ("reference", "-1"))

    @pytest.mark.parametrize("name", ["../kl.safetensors", "/etc/passwd", "run.jsonl"])
    def test_other_files_are_not_read(self, tmp_path: Path, name: str) -> None:
        """Neither outside the folder of the results, nor what is no counterexample."""
        (tmp_path / "runs").mkdir()
        (tmp_path / "runs" / "run.jsonl").write_text("{}")
        write_counterexample(tmp_path / "kl.safetensors", counterexample(policy=np.ones(1)))
        table = small_input(smallest(words=MEASURED, file=name), tmp_path / "runs")
        assert table is not None
        assert table.rows == (("policy", "0"), ("reference", "-1"))

    @pytest.mark.parametrize(
        ("words", "expected"),
        [
            (
                "mine raised: TypeError: no; inputs: rewards [0.0, 1.0], scale 'group'",
                ((("rewards", "[0.0, 1.0]"), ("scale", "'group'")), "", "mine raised: TypeError: no", ""),
            ),
            (
                "kl error is inf, must be <= 1 (at [0, 3]: got nan, want 0.5); inputs: policy [-1.0]; a NaN",
                ((("policy", "[-1.0]"),), "[0, 3]", "nan", "0.5"),
            ),
            ("something else", ((), "", "something else", "")),
        ],
        ids=["exception", "claim", "other words"],
    )
    def test_words(self, tmp_path: Path, words: str, expected: tuple[object, ...]) -> None:
        table = small_input(smallest(words=words), tmp_path)
        assert table is not None
        assert (table.rows, table.where, table.got, table.want) == expected
        assert ("a NaN" in table.remarks) == words.endswith("a NaN")


class TestBrowser:
    """The page in a browser."""

    def test_a_link_unfolds_the_definition(self, chromium: Browser, run: Path, tmp_path: Path) -> None:
        """By keyboard; and a link to a section unfolds what it holds."""
        page = shown(chromium, [run], tmp_path)
        page.value("document.querySelector('.names a').focus()")
        page.press("Enter")
        page.value("new Promise(done => setTimeout(done, 100))", wait=True)
        assert page.value("document.getElementById('op-group_advantages').getClientRects().length > 0")
        page.value("document.querySelector('a[href=\"#verdicts\"]').click()")
        page.value("new Promise(done => setTimeout(done, 100))", wait=True)
        assert page.value("document.getElementById('matrix').getClientRects().length > 0")
        assert wrong(page) == []

    @pytest.mark.parametrize("width", [390, 800, 1400])
    def test_the_first_screen_is_not_cut(self, chromium: Browser, run: Path, tmp_path: Path, width: int) -> None:
        """The wrong op with its table begins on it at every width; nothing is wider than the window."""
        page = shown(chromium, [run], tmp_path, width=width, height=900)
        assert page.value("document.querySelector('.small-input').getBoundingClientRect().top") < 700
        assert page.value("document.documentElement.scrollWidth") <= width

    def test_hostile_words_stay_text(self, chromium: Browser, tmp_path: Path) -> None:
        """In the title, the cause, the table and the command."""
        names = dict.fromkeys(("gate", "subject", "case"), HOSTILE)
        words = f"kl: {HOSTILE}: got {HOSTILE}, want <b>1</b>; inputs: x <img src=x>"
        failing = verdict("wrong", op=HOSTILE, reason=HOSTILE, **names)
        path = write(tmp_path / "run.jsonl", [failing], also=[smallest(**names, words=words, file=HOSTILE)]).path
        page = shown(chromium, [path], tmp_path)
        assert page.value("document.querySelectorAll('script, .small-input img, .small-input b').length") == 2
        assert wrong(page) == []
