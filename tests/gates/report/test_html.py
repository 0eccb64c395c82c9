"""The HTML page: one file, safe against markup in a subject's text, and a pure function of the results."""

import base64
import hashlib
import json
import re
from pathlib import Path

import pytest
from pages import SEEN, Elements
from runs_on_file import verdict, write

from gates.model import Evidence, Verdict
from gates.report.files import render_files
from gates.report.html import render_html
from gates.results.records import verdict_record

ROOT = Path(__file__).resolve().parents[3]
CSS = (ROOT / "gates" / "report" / "page" / "style.css").read_text()


class TestFile:
    """The content of the file."""

    def test_the_file_is_self_contained(self, mixed: list[Path]) -> None:
        """Every address points into the page, and the content security policy blocks loading."""
        page = Elements(render_html(mixed))
        addresses = [
            value for _, attributes in page.found for name, value in attributes.items() if name in {"src", "href"}
        ]
        names = {f"#{attributes['id']}" for _, attributes in page.found if "id" in attributes}
        assert addresses[0] == "#main"
        assert set(addresses) <= names
        (policy,) = (
            a["content"] for t, a in page.found if t == "meta" and a.get("http-equiv") == "Content-Security-Policy"
        )
        assert "default-src 'none'" in str(policy)
        assert "url(" not in CSS
        assert "@import" not in CSS

    def test_the_policy_has_the_hashes_of_script_and_style(self, mixed: list[Path]) -> None:
        """The hashes are those of the text between the tags, as in a browser."""
        text = render_html(mixed)
        for tag in ("script", "style"):
            (body,) = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
            digest = base64.b64encode(hashlib.sha256(body.encode()).digest()).decode()
            assert f"{tag}-src 'sha256-{digest}'" in text

    def test_hostile_text_is_escaped(self, hostile: Path) -> None:
        """Markup in names, reasons, versions and commands creates no element and is shown literally."""
        page = Elements(render_html([hostile]))
        assert [tag for tag, _ in page.found].count("script") == 2
        assert not [name for _, attributes in page.found for name in attributes if name.startswith("on")]
        data = json.loads(page.text("script").partition('"use strict"')[0])
        assert SEEN in data["strings"]
        assert f"gates {SEEN}" in page.text("code")
        shown = " ".join(page.text("th").split())
        assert " ".join(SEEN.split()) in shown

    def test_every_header_cell_has_a_scope(self, mixed: list[Path]) -> None:
        """Each `th` has a scope, each control a label, each section a heading, and the language is named."""
        page = Elements(render_html(mixed))
        assert all(attributes.get("scope") for tag, attributes in page.found if tag == "th")
        assert all(attributes.get("aria-labelledby") for tag, attributes in page.found if tag in {"section", "dialog"})
        assert {"lang": "en"} in [attributes for tag, attributes in page.found if tag == "html"]
        (picture,) = (attributes for tag, attributes in page.found if tag == "svg")
        assert picture["role"] == "img"
        named = [attributes.get("id") for tag, attributes in page.found if tag in {"title", "desc"}]
        assert str(picture["aria-labelledby"]).split() == [name for name in named if name]

    def test_status_is_never_by_colour_alone(self, mixed: list[Path]) -> None:
        page = Elements(render_html(mixed))
        words = page.text("button").split("Close")[0].lower()
        for status in ("correct", "wrong", "departs", "error", "waived", "unsupported", "skipped"):
            assert status in words

    def test_each_subject_has_a_line(self, mixed: list[Path]) -> None:
        """It counts the ops of each grade, and leads to the run."""
        text = render_html(mixed)
        rows = re.findall(r'<tr><th scope="row"><a href="#(run-\d)">(\w+)</a></th>(.*?)</tr>', text)
        grades = {name: re.findall(r"</span> (\d [a-z ]+)</li>", row) for _, name, row in rows}
        assert grades == {
            "mine": ["1 wrong", "1 error", "1 documented deviations", "1 waived", "1 correct"],
            "peer": [],
        }
        assert {run for run, _, _ in rows} == {"run-1"}

    def test_the_worst_case_is_shown(self, tmp_path: Path) -> None:
        """A gate that fails in three of four cases shows one reason, of the case furthest beyond its limit."""
        failing = [Evidence("kl", value, "<=", 4.0, "x") for value in (8.0, 400.0, 40.0)]
        records = [
            verdict_record(
                Verdict("kl.k3", "mine", f"case-{n}", 7, "wrong", "bound", item.sentence(), evidence=(item,))
            )
            for n, item in enumerate(failing)
        ]
        write(tmp_path / "run.jsonl", [*records, verdict(), verdict("unsupported", case="other")])
        said = " ".join(Elements(render_html([tmp_path / "run.jsonl"])).text("li").split())
        assert "kl.k3, 3 of 4 cases" in said
        assert "case-1: kl is 400, must be <= 4" in said
        assert "case-0" not in said

    def test_sensitivities_are_drawn_and_listed(self, mixed: list[Path]) -> None:
        """There is a mark per distinct value, a table, and a note for a gate that detects nothing."""
        text = render_html(mixed)
        assert text.count('class="worst"') == 2
        assert text.count('class="case"') == 1
        assert "1e-03; 1 of 2 cases notice nothing" in text
        assert text.count("nothing that was tried") == 2

    def test_mutants_are_listed(self, mixed: list[Path]) -> None:
        """Mutants are caught or missed, and their verdicts do not count for their host."""
        page = Elements(render_html(mixed))
        assert "caught in 1 of 1 cases" in page.text("td")
        assert "missed in 0 of 1 cases" in page.text("td")
        assert "2 wrong" not in page.text("li")

    def test_changes_since_a_baseline(self, tmp_path: Path) -> None:
        """`--baseline` shows the settings that differ, and each change with its kind."""
        old = [verdict(), verdict(case="other"), verdict("wrong", gate="packing")]
        write(tmp_path / "old.jsonl", old, seed=3)
        write(tmp_path / "new.jsonl", [verdict(), verdict("wrong", case="other"), verdict(gate="packing")])
        once, again = ("".join(render_files([tmp_path / "new.jsonl"], "html", tmp_path / "old.jsonl")) for _ in "12")
        assert once == again
        said = Elements(once)
        assert "Changes since old.jsonl" in said.text("h2")
        assert "seed was 3, is 0" in said.text("li")
        assert "1 new failure, 1 fixed, 1 as before" in said.text("p")
        assert "mine · kl.k3 · other: correct → wrong: kl error in 2u·S is nan" in said.text("li")
        assert {"new failure", "fixed"} <= {words for tag, words in said.texts if tag == "span"}

    def test_a_calibration_has_a_plot_and_a_table(self, calibrated: Path) -> None:
        """Each gate has a disc at its largest share and its counts in text; gates with false positives have a cross."""
        text = render_html([calibrated])
        said = Elements(text)
        drawn = {a["class"]: 0 for tag, a in said.found if tag in {"circle", "path"}}
        for tag, attributes in said.found:
            if tag in {"circle", "path"}:
                drawn[attributes["class"]] += 1
        assert drawn == {"worst": 2, "refused": 4}
        left = next(float(str(a["x1"])) for tag, a in said.found if tag == "line" and a["class"] == "base")
        limit = next(float(str(a["x1"])) for tag, a in said.found if tag == "line" and a["class"] == "limit")
        places = [float(str(a["cx"])) for tag, a in said.found if tag == "circle"]
        shares = [round((x - left) / (limit - left), 2) for x in places]
        assert shares == [0.3, 0.9, 1.25, 1.25]  # of b, c, d (1.7) and e (NaN): larger shares are drawn at the edge
        assert "20 seeds, 2 with a false positive" in said.text("text")
        assert "gates check d --seed 4 --subject mine --quick" in said.text("code")
        cells = re.findall(r"<tr><th scope=\"row\">(\w)</th>(.*?)</tr>", text)
        columns = {name: re.findall(r"<td>(.*?)</td>", row) for name, row in cells}
        # the exact 95% bound is 1 − 0.05^(1/n) without a false positive, 0.139 for n = 20
        assert columns["a"] == ["20", "20", "0", "0.14", "none", ""]
        assert columns["c"] == ["20", "20", "0", "0.14", "0.9", "kl: mine, some, seed 15"]
        assert columns["d"][2:] == ["2", "0.28", "1.7", "kl: mine, some, seed 3"]
        assert columns["e"][4] == "not finite"
        assert "incomplete: 100 of 120" in said.text("p")

    def test_a_page_with_calibrations_only(self, calibrated: Path) -> None:
        """It has neither a table nor a count of verdicts, and every plot has a title and a description."""
        page = Elements(render_html([calibrated, calibrated]))
        names = [attributes.get("id") for _, attributes in page.found if attributes.get("id")]
        assert len(names) == len(set(names))
        for tag, attributes in page.found:
            for name in str(attributes.get("aria-labelledby", "")).split() if tag in {"svg", "section"} else ():
                assert name in names
        assert [tag for tag, _ in page.found].count("desc") == 2
        assert "counts" not in [attributes.get("class") for _, attributes in page.found]

    @pytest.mark.parametrize("scheme", ["light", "dark"])
    def test_colours_have_contrast(self, scheme: str) -> None:
        """Every text colour has a contrast of at least 4.5 to 1 with its backgrounds (WCAG 2.2, 1.4.3)."""
        blocks = re.findall(r":root \{(.*?)\}", CSS, re.DOTALL)
        colours = dict(re.findall(r"--([\w-]+): (#\w+);", blocks[scheme == "dark"]))

        def luminance(text: str) -> float:
            digits = text[1:] if len(text) == 7 else "".join(2 * digit for digit in text[1:])
            parts = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
            linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
            return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

        pairs = [(name, f"{name}-ground") for name in ("correct", "wrong", "departs", "error", "waived", "imprecise")]
        pairs += [(name, ground) for name in ("text", "quiet") for ground in ("ground", "raised")]
        pairs += [("correct", "raised"), ("wrong", "raised")]
        pairs += [("quiet", f"{name}-ground") for name in ("wrong", "departs", "error", "waived", "imprecise")]
        pairs += [(name, "ground") for name, _ in pairs[:6]] + [("text", "wrong-ground"), ("accent", "ground")]
        pairs += [("accent", "accent-ground"), ("accent", "raised"), ("departs", "raised"), ("error", "raised")]
        for front, back in pairs:
            low, high = sorted((luminance(colours[front]), luminance(colours[back])))
            assert (high + 0.05) / (low + 0.05) >= 4.5, (front, back)
