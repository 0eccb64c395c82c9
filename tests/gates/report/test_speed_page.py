"""Speeds as a page, as pictures and as one screen, with wrong ops graded instead of timed; and the command."""

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from chromium import Browser, wrong
from pages import Elements
from speeds import CALLED_WRONG, REFUSED, full_size, kernel, trainer, written
from typer.testing import CliRunner

from gates.cli.verbs import app
from gates.model import ConfigurationError
from gates.report.speed.document import document
from gates.report.speed.html import render_page
from gates.report.speed.markdown import render_pictures, render_speed
from gates.report.speed.screen import render_screen
from gates.results.speed_file import SpeedResults, is_speed_file, read_speed
from gates.results.speed_records import Interval

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


def test_ops_graded_wrong_show_no_time(make: Make) -> None:
    """No table, list or picture shows the time or the ratio of an op that conformance grades wrong."""
    wrong = trainer(target="mlxrl", conformance="wrong", ratio=Interval(value=77.0, low=77.0, high=77.0))
    good = [kernel(op="token_kl", shape=s, peer="torch") for s in ("1x128", "1x512")]
    runs = [make(CALLED_WRONG, *good), make(trainer(), wrong, name="t.jsonl", kind="trainers")]
    for text in (render_speed(runs), render_page(runs), render_screen(runs), *render_pictures(runs).values()):
        assert not re.search(r"\b(77|770|84\.7|69\.3)\b", text.partition("<style>")[0] + text.partition("</style>")[2])
    text = render_speed(runs)
    assert line_of(text, "| 1 × 128 ").split(" | ")[2] == "[**wrong**](CONFORMANCE.md)"
    assert "| `mlxrl` | same semantics | tiny 32-bit, geometric | [**wrong**](CONFORMANCE.md) |" in text
    assert "rlox: graded wrong, not timed" in render_pictures(runs)["speed-kl.svg"]


class TestPage:
    """The HTML page."""

    def test_the_page_is_self_contained(self, full: list[SpeedResults]) -> None:
        """Every address points into the page; the content security policy blocks loading and scripts."""
        text = render_page(full)
        page = Elements(text)
        addresses = {v for _, attributes in page.found for name, v in attributes.items() if name in {"src", "href"}}
        assert addresses <= {f"#{attributes['id']}" for _, attributes in page.found if "id" in attributes}
        assert "default-src 'none'" in text
        assert not {"script", "link", "img"} & {tag for tag, _ in page.found}
        assert set(re.findall(r"https?://[^\s\"<]+", text)) <= {"http://www.w3.org/2000/svg"}

    def test_markup_from_peers_is_escaped(self, make: Make) -> None:
        """Markup in a reason, a note or a name creates no element."""
        hostile = "<script>alert(1)</script>"
        text = render_page([make(kernel(note=hostile, peer="<b>p"), REFUSED.model_copy(update={"reason": hostile}))])
        assert "<script" not in text
        assert "<b>" not in text
        assert "&lt;script&gt;" in text

    def test_the_page_has_every_section_of_the_markdown(self, full: list[SpeedResults]) -> None:
        page = Elements(render_page(full))
        assert [a["id"] for tag, a in page.found if tag == "h2"] == [section.name for section in document(full)[1]]
        assert sum(tag == "svg" for tag, _ in page.found) >= 3

    @pytest.mark.parametrize("dark", [False, True])
    @pytest.mark.parametrize("width", [390, 800, 1400])
    def test_the_page_does_not_scroll_sideways(
        self, chromium: Browser, full: list[SpeedResults], tmp_path: Path, width: int, dark: bool
    ) -> None:
        """On phones and desktops, light and dark; only tables scroll, and nothing is loaded."""
        (tmp_path / "page.html").write_text(render_page(full), encoding="utf-8")
        chromium.open(tmp_path / "page.html", width=width, dark=dark)
        assert chromium.value("document.documentElement.scrollWidth") <= width
        background = chromium.value("getComputedStyle(document.body).backgroundColor")
        assert background == ("rgb(20, 23, 28)" if dark else "rgb(255, 255, 255)")
        assert wrong(chromium) == []


class TestPictures:
    """Speed against size, with the roofline."""

    def test_pictures_are_deterministic(self, full: list[SpeedResults]) -> None:
        pictures = render_pictures(full)
        assert set(pictures) == {"speed-advantages.svg", "speed-kl.svg", "speed-vocabulary.svg"}
        assert render_pictures(full) == pictures
        assert all(len(text) < 60_000 and "20" + "26" not in text for text in pictures.values())

    def test_axes_have_units_and_lines_differ_in_more_than_colour(self, make: Make) -> None:
        """Each peer has its own dash and marker; the roofline has a label."""
        rows = [kernel(shape=s, peer=p) for s in ("16x4", "64x8") for p in ("rlox", "trl", "torch")]
        text = render_pictures([make(*rows)])["speed-advantages.svg"]
        for label in ("rewards per second", "rewards per call", "rlkernels (ours)", "roofline", "rlox"):
            assert label in text
        assert len(set(re.findall(r'stroke="(#\w+)" stroke-dasharray="([\d ]+)"', text))) == 3
        assert "prefers-color-scheme:dark" in text


class TestCommand:
    """`gates report` on speed files."""

    def test_the_file_name_selects_the_format(self, make: Make, tmp_path: Path) -> None:
        """Markdown with picture files, an HTML page, or one screen of text."""
        path = str(make(*[kernel(shape=s) for s in ("16x4", "64x8")]).path)
        for name in ("SPEED.md", "SPEED.html"):
            assert CliRunner().invoke(app, ["report", path, "--out", str(tmp_path / name)]).exit_code == 0
        run = read_speed(Path(path))
        assert (tmp_path / "SPEED.md").read_text() == render_speed([run])
        assert (tmp_path / "speed-advantages.svg").read_text() == render_pictures([run])["speed-advantages.svg"]
        assert (tmp_path / "SPEED.html").read_text() == render_page([run])
        done = CliRunner().invoke(app, ["report", path])
        assert done.output == render_screen([run])

    def test_a_large_run_fits_on_one_screen(self, full: list[SpeedResults]) -> None:
        lines = render_screen(full).splitlines()
        assert len(lines) <= 50
        assert any("control 1 [0.99–1.01]" in line for line in lines)

    def test_speed_files_and_verdict_files_do_not_mix(self, make: Make, tmp_path: Path) -> None:
        """One call renders one kind of file, in a format for this kind."""
        path = make(kernel()).path
        (tmp_path / "other.jsonl").write_text('{"record": "header"}\n')
        assert is_speed_file(path)
        assert not is_speed_file(tmp_path / "other.jsonl")
        for arguments in ([str(tmp_path / "other.jsonl")], ["--format", "junit"], ["--baseline", str(path)]):
            done = CliRunner().invoke(app, ["report", str(path), *arguments])
            assert isinstance(done.exception, ConfigurationError)
