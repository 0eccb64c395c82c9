"""The HTML page in a headless Chromium: keyboard, screen readers, layout, and safety against hostile text."""

import itertools
from pathlib import Path
from typing import Any

import pytest
from chromium import Browser, shown, wrong
from pages import SEEN

UNFOLD = "document.getElementById('verdicts').nextElementSibling.open = true"

CUT = """[...document.querySelectorAll("body *")].filter(e => {
  const box = e.getBoundingClientRect();
  return box.width && box.right > innerWidth + 1 && !e.closest(".scroll, .hidden, .skip");
}).map(e => e.outerHTML.slice(0, 99))"""


class TestBrowser:
    """The page in a browser."""

    def test_the_page_works_by_keyboard(self, chromium: Browser, mixed: list[Path], tmp_path: Path) -> None:
        """Arrows move between cells, Enter shows the evidence, Escape returns to the cell."""
        page = shown(chromium, mixed, tmp_path)
        page.value(UNFOLD)
        page.value("document.querySelector('#matrix button[tabindex=\"0\"]').focus()")
        where = "document.activeElement.dataset.cell"
        visited = [page.value(where)]
        for key in ("ArrowDown", "ArrowLeft", "ArrowUp", "ArrowDown"):
            page.press(key)
            visited.append(page.value(where))
        assert visited == ["0/1", "1/1", "1/0", "1/0", "2/0"]
        page.press("ArrowUp")
        page.press("Enter")
        assert page.value("document.querySelector('dialog').open")
        assert page.value("document.getElementById('evidence-of').textContent") == "mine · kl.k3"
        first = page.value("document.querySelector('#cases details').textContent")
        assert "✗ wrong other" in first
        assert "kl error in 2u·S is nan, must be <= 4 (at [1])" in first
        page.press("Escape")
        assert not page.value("document.querySelector('dialog').open")
        assert page.value(where) == "1/0"
        assert wrong(page) == []

    def test_tab_reaches_the_table_once(self, chromium: Browser, mixed: list[Path], tmp_path: Path) -> None:
        """All cells are one tab stop, and the focus is visible."""
        page = shown(chromium, mixed, tmp_path)
        page.value(UNFOLD)
        stops: list[Any] = []
        for _ in range(60):
            page.press("Tab")
            stops.append(page.value("document.activeElement.dataset.cell ?? ''"))
            if stops[-1]:
                assert page.value("getComputedStyle(document.activeElement).outlineStyle") == "solid"
        assert len(set(stops)) == 2
        assert not any(one and other for one, other in itertools.pairwise(stops))

    @pytest.mark.parametrize(
        ("action", "gates", "columns"),
        [
            ("", ["kl.k1", "kl.k3", "loss.grpo", "packing", "ratio", "weights"], ["mine", "peer"]),
            ("family.value = 'kl'", ["kl.k1", "kl.k3"], ["mine", "peer"]),
            ("failing.checked = true", ["kl.k3", "loss.grpo", "packing", "ratio"], ["mine", "peer"]),
            ("document.querySelector('input[name=subject][value=\"0\"]').checked = false", None, ["peer"]),
        ],
        ids=["all", "family", "failing", "subject"],
    )
    def test_filters(
        self,
        chromium: Browser,
        mixed: list[Path],
        tmp_path: Path,
        action: str,
        gates: list[str] | None,
        columns: list[str],
    ) -> None:
        """Gates are filtered by family, subject and failure; their number is announced to screen readers."""
        page = shown(chromium, mixed, tmp_path)
        page.value(UNFOLD)
        page.value(f"{action}; document.getElementById('filters').dispatchEvent(new Event('input'))")
        seen = "[...document.querySelectorAll('{}')].filter(e => e.offsetParent).map(e => e.textContent)"
        found = page.value(seen.format("#matrix th[scope=row]"))
        assert found == (gates or ["kl.k1", "kl.k3", "loss.grpo", "packing", "ratio", "weights"])
        assert page.value(seen.format("#matrix thead th[data-column]")) == columns
        subjects = f"{len(columns)} {'subject' if len(columns) == 1 else 'subjects'}"
        assert page.value("shown.textContent") == f"{len(found)} of 6 gates, {subjects}"
        assert page.value("shown.getAttribute('role')") == "status"

    def test_a_screen_reader_gets_names(self, chromium: Browser, mixed: list[Path], tmp_path: Path) -> None:
        """Every control has a name, and the table has row and column headers."""
        page = shown(chromium, mixed, tmp_path)
        page.value(UNFOLD)
        nodes = page.send("Accessibility.getFullAXTree")["nodes"]
        named = [
            (str(node["role"]["value"]), str(node.get("name", {}).get("value", "")))
            for node in nodes
            if not node["ignored"]
        ]
        for role in ("button", "checkbox", "combobox", "columnheader", "rowheader", "heading", "table"):
            names = [name for kind, name in named if kind == role]
            assert names, role
            assert all(names), role
        assert ("button", "WRONG 1 of 2") in [(role, name.strip()) for role, name in named]

    def test_a_calibration_opens_by_keyboard_and_has_names(
        self, chromium: Browser, mixed: list[Path], calibrated: Path, tmp_path: Path
    ) -> None:
        """Enter opens it; a screen reader gets the plot as one image with name and description, and the table."""
        page = shown(chromium, [*mixed, calibrated], tmp_path)
        numbers = "document.querySelector('section[aria-labelledby=calibration-1] details')"
        assert not page.value(f"{numbers}.open")
        page.value(f"{numbers}.querySelector('summary').focus()")
        page.press("Enter")
        assert page.value(f"{numbers}.open")
        nodes = page.send("Accessibility.getFullAXTree")["nodes"]
        images = [node for node in nodes if not node["ignored"] and node["role"]["value"] == "image"]
        assert len(images) == 2
        for image in images:
            assert "the table below has the numbers" in image["name"]["value"]
        assert page.value(f"{numbers}.querySelectorAll('tbody tr').length") == 5
        assert wrong(page) == []

    def test_dark_and_light(self, chromium: Browser, mixed: list[Path], tmp_path: Path) -> None:
        """The page follows the preferred colour scheme."""
        ground = "getComputedStyle(document.body).backgroundColor"
        assert shown(chromium, mixed, tmp_path).value(ground) == "rgb(255, 255, 255)"
        assert shown(chromium, mixed, tmp_path, dark=True).value(ground) == "rgb(20, 23, 28)"

    @pytest.mark.parametrize("width", [390, 800, 1400])
    def test_only_tables_scroll_sideways(
        self, chromium: Browser, mixed: list[Path], tmp_path: Path, width: int
    ) -> None:
        """The page is not wider than the window (WCAG 2.2, 1.4.10), also with the recorded results."""
        recorded = sorted((Path(__file__).parents[3] / "results" / "gates").glob("*.jsonl*"))
        for paths in (mixed, recorded):
            page = shown(chromium, paths, tmp_path, width=width)
            page.value("for (const fold of document.querySelectorAll('details')) fold.open = true")
            assert page.value("document.documentElement.scrollWidth") <= width
            assert page.value(CUT) == []
        assert width > 390 or page.value("matrix.scrollWidth > matrix.clientWidth")
        assert (tmp_path / "page.html").stat().st_size <= 2_000_000

    def test_hostile_text_is_not_executed(self, chromium: Browser, hostile: Path, tmp_path: Path) -> None:
        """No injected script runs, the policy is not violated, and the evidence shows the text literally."""
        page = shown(chromium, [hostile], tmp_path)
        page.value("document.querySelector('td.wrong button').click()")
        assert page.value("document.querySelectorAll('script').length") == 2
        assert SEEN in page.value("document.getElementById('cases').textContent")
        assert not [event for event in page.events if event["method"] == "Page.javascriptDialogOpening"]
        assert wrong(page) == []
