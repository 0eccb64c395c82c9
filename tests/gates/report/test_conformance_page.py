"""The conformance page: the matrix leads to the findings, by library; text is escaped, and nothing is cut."""

from pathlib import Path
from urllib.parse import unquote

import pytest
from chromium import Browser, wrong
from libraries import finding, grade, header
from pages import Elements

from gates.report.conformance.html import filters, render_page, slug, ticked
from gates.report.conformance.rows import ROWS
from gates.results.conformance_records import BlankRecord, ConformanceResults, read_conformance
from gates.results.library_facts import read_facts

FOLDER = Path(__file__).resolve().parents[3] / "results" / "conformance"
FILES = sorted(FOLDER.glob("*.jsonl"))
HOSTILE = '"><script>alert(1)</script>'


@pytest.fixture
def recorded() -> str:
    """Return the page of the recorded libraries."""
    return render_page(map(read_conformance, FILES), read_facts(FOLDER))


class TestFile:
    """The content of the file."""

    def test_every_link_leads_into_the_page(self, recorded: str) -> None:
        """A grade links to a finding that explains it; nothing is loaded, and no script may run."""
        page = Elements(recorded)
        names = {str(attributes["id"]) for _, attributes in page.found if "id" in attributes}
        links = [str(attributes["href"]) for tag, attributes in page.found if tag == "a"]
        assert {unquote(link.removeprefix("#")) for link in links} <= names
        assert "#finding-rlox-token-kl-k3" in links or any(link.startswith("#finding-rlox") for link in links)
        assert "default-src 'none'" in recorded
        assert "script-src" not in recorded
        assert not {"script", "link", "img"} & {tag for tag, _ in page.found}

    def test_it_has_every_library_finding_and_grade(self, recorded: str) -> None:
        libraries = [read_conformance(file) for file in FILES]
        page = Elements(recorded)
        names = [str(attributes["id"]) for _, attributes in page.found if "id" in attributes]
        assert len(names) == len(set(names))
        assert {f"library-{library.header.peer}" for library in libraries} <= set(names)
        assert {f"finding-{item.id}" for library in libraries for item in library.findings} <= set(names)
        assert all(item.says.replace("`", "") for library in libraries for item in library.findings)

    def test_cells(self) -> None:
        """Grades with symbols, settings with a dagger, ops without a grade, and compositions."""
        library = ConformanceResults(
            header("fake"),
            [
                grade("fake", "token_kl[k3]", "wrong", ("fake-k3",)),
                grade("fake", "policy_loss[grpo]", "correct").model_copy(update={"settings": ["a clip"]}),
                grade("fake@rloo", "policy_loss[rloo, no ratio]", "correct"),
            ],
            findings=[finding("fake-k3", "bug")],
            blanks=[BlankRecord(op="kto_loss", kind="refused", why="ValueError")],
        )
        text = render_page([library], {})
        assert '<a href="#finding-fake-k3" title="fake-k3" aria-label="fake-k3">1</a>' in text
        assert '<span aria-hidden="true">✗</span> wrong<small>with a documented option</small>' in text
        assert "<small>8 of 9 asked, calls †</small>" in text
        assert "<small>as <em>no ratio</em></small>" in text
        assert '<span aria-hidden="true">⊘</span> refused' in text

    def test_columns_and_rows_have_the_classes_that_filters_hide(self, recorded: str) -> None:
        page = Elements(recorded)
        classes = [
            set(str(attributes.get("class", "")).split()) for tag, attributes in page.found if tag in {"td", "tr"}
        ]
        assert any({"column", "mac", "cpu"} <= each and "cuda" not in each for each in classes)
        assert any({"column", "cuda", "cpu"} <= each and "mac" not in each for each in classes)
        assert {slug(row.title) for row in ROWS} <= set().union(*classes)
        assert "body:has(#platform-mac:checked) .column:not(.mac) { display: none; }" in filters()

    def test_names_of_rows_are_distinct_classes(self) -> None:
        assert len({slug(row.title) for row in ROWS}) == len(ROWS)

    def test_markup_of_libraries_is_escaped(self) -> None:
        changes = dict.fromkeys(("id", "says", "computes", "number", "where", "repro", "output"), HOSTILE)
        library = ConformanceResults(
            header(HOSTILE),
            [grade(HOSTILE, HOSTILE, "wrong", (HOSTILE,))],
            findings=[finding("x", "bug").model_copy(update=changes)],
        )
        text = render_page([library], {})
        assert "<script" not in text
        assert "&lt;script&gt;" in text

    def test_code_between_backticks(self) -> None:
        assert ticked("set `a < b`, or not") == "set <code>a &lt; b</code>, or not"


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [390, 800, 1400])
def test_only_the_matrix_scrolls_sideways(
    chromium: Browser, recorded: str, tmp_path: Path, width: int, dark: bool
) -> None:
    """On phones and desktops, light and dark, with every fold open."""
    (tmp_path / "page.html").write_text(recorded, encoding="utf-8")
    chromium.open(tmp_path / "page.html", width=width, dark=dark)
    chromium.value("for (const fold of document.querySelectorAll('details')) fold.open = true")
    assert chromium.value("document.documentElement.scrollWidth") <= width
    assert chromium.value("[...document.querySelectorAll('pre')].every(p => p.scrollWidth <= p.clientWidth)")
    assert wrong(chromium) == []
