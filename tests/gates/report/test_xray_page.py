"""The page of an X-ray: self-contained, safe, readable at every width, in light and dark."""

import json
import re
from pathlib import Path

import pytest
from chromium import Browser, wrong
from pages import Elements
from recordings import events, generated, lines, write
from scenarios import LENGTHS, advantages, second

from gates.report.xray.page import page
from gates.xray.picture import read

HOSTILE = "<script>alert(1)</script>\x1b[31m\n"
CUT = """[...document.querySelectorAll("body *")].filter(e => {
  const box = e.getBoundingClientRect();
  return box.width && box.right > innerWidth + 1 && !e.closest(".scroll, .hidden, .skip");
}).map(e => e.outerHTML.slice(0, 99))"""
CONTRAST = """(() => {
  const parse = c => c.match(/[\\d.]+/g).map(Number);
  const over = (top, ground) => { const a = top[3] ?? 1; return [0, 1, 2].map(i => top[i] * a + ground[i] * (1 - a)); };
  const light = c => { const [r, g, b] = c.map(v => v / 255).map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const ground = parse(getComputedStyle(document.body).backgroundColor);
  return Math.min(...[...document.querySelectorAll(".tokens span")].map(e => {
    const style = getComputedStyle(e);
    const [a, b] = [light(parse(style.color)), light(over(parse(style.backgroundColor), ground))].sort((x, y) => y - x);
    return (a + 0.05) / (b + 0.05);
  }));
})()"""


@pytest.fixture
def rendered(tmp_path: Path) -> Path:
    """Return a page of two updates, with a hostile text."""
    for made in second(lines(LENGTHS), advantages(), beta=0.5, bounds=(0.8, 1.2)):
        path = write(tmp_path / "p", made) / f"update-{made.number}.json"
        document = json.loads(path.read_text())
        document["rows"][0]["text"][8] = HOSTILE
        document["model"] = HOSTILE
        path.write_text(json.dumps(document))
    events(tmp_path / "p", generated(top_k=20), updates=2)
    (tmp_path / "page.html").write_text(page(read(tmp_path)), encoding="utf-8")
    return tmp_path / "page.html"


def test_the_page_is_self_contained_and_escapes_text(rendered: Path) -> None:
    text = rendered.read_text(encoding="utf-8")
    shown = Elements(text)
    addresses = {v for _, attributes in shown.found for name, v in attributes.items() if name in {"src", "href"}}
    assert addresses <= {f"#{attributes['id']}" for _, attributes in shown.found if "id" in attributes}
    assert not {"script", "link", "img"} & {tag for tag, _ in shown.found}
    assert "default-src 'none'" in text
    assert "\x1b" not in text
    assert not re.search(r"https?://", text)


def test_a_token_says_its_number_in_its_title_and_in_the_table(rendered: Path) -> None:
    """The title is for the mouse, the table for the keyboard."""
    text = rendered.read_text(encoding="utf-8")
    assert re.search(r'<span class="up l\d begin" title="token 6: −0\.0205\d* ± [\d.e-]+, pushed up">', text)
    assert "4 tokens from 11 on: hidden by the attention mask" in text
    shown = Elements(text)
    assert sum(tag == "details" for tag, _ in shown.found) == 16
    assert sum(tag == "h2" for tag, _ in shown.found) == 2


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [390, 800, 1400])
def test_nothing_is_cut_and_text_is_readable_on_its_colour(
    width: int, dark: bool, chromium: Browser, rendered: Path
) -> None:
    """Text keeps a contrast of 4.5 on every ground (WCAG 1.4.3)."""
    chromium.open(rendered, width=width, dark=dark)
    chromium.value("document.querySelectorAll('details').forEach(each => each.open = true)")
    assert chromium.value(CUT) == []
    assert chromium.value("document.documentElement.scrollWidth") <= width
    assert chromium.value(CONTRAST) >= 4.5
    assert wrong(chromium) == []


def test_numbers_are_reached_by_keyboard(chromium: Browser, rendered: Path) -> None:
    """Tab comes to the fold of the first row, Enter opens it, and Tab goes on into its table."""
    chromium.open(rendered)
    for _ in range(30):
        chromium.press("Tab")
        if chromium.value("document.activeElement.tagName") == "SUMMARY":
            break
    assert chromium.value("document.activeElement.textContent") == "Numbers of row 1"
    chromium.press("Enter")
    chromium.press("Tab")
    assert (
        chromium.value("document.activeElement.getAttribute('aria-label')")
        == "Coefficients of row 1 of update 1, table"
    )
