"""The HTML page: one file, nothing of a subject taken for markup, usable without a mouse, a pure function of the files."""

from __future__ import annotations

import base64
import hashlib
import html
import itertools
import json
import math
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from chromium import PROGRAM, Browser, browser
from runs_on_file import HOSTILE, header, verdict, write

from gates.model import Evidence, Verdict, Waived
from gates.report.files import render_files
from gates.report.format_names import ReportFormat
from gates.report.html import render_html
from gates.report.jsonl import Writer
from gates.report.records import (
    AlarmRecord,
    BlockRecord,
    CounterexampleRecord,
    SensitivityRecord,
    ShareRecord,
    SubjectRecord,
    verdict_record,
)

ROOT = Path(__file__).resolve().parents[2]
SEEN = HOSTILE.replace("\x1b", "\\u001b")  # how its control character is shown
CSS = (ROOT / "gates" / "report" / "page" / "style.css").read_text()


class Elements(HTMLParser):
    """Every element's name and attributes, and the text inside each kind."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self._open = [""]
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in {"meta", "input", "br"}:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        while self._open.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        self.texts.append((self._open[-1], data))

    def text(self, tag: str) -> str:
        return "".join(data for kind, data in self.texts if kind == tag)


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """A check with one verdict of each status, and a proof with sensitivities and mutants."""
    waived = Waived("fail", "known", "#12", "ada", "2027-01-01")
    check = [
        verdict(),
        verdict("fail", case="other"),
        verdict("fail", gate="loss.grpo", cause="departs"),
        verdict("error", gate="packing"),
        verdict("waived", gate="ratio", waived=waived),
        verdict("pass", gate="weights"),
        *(verdict("unsupported", gate=gate, subject="peer") for gate in ("kl.k1", "kl.k3")),
        verdict("skipped", subject="peer", gate="loss.grpo"),
    ]
    proof = [verdict(), verdict("fail", mutant="kl.flipped"), verdict("pass", mutant="kl.lost")]
    write(tmp_path / "check.jsonl", check, problems=["required, but skipped: peer"])
    noticed = {"kl.k1": [1e-10, 1e-6], "kl.k3": [1e-3, None], "loss.grpo": [None]}
    records = [
        SensitivityRecord(gate=gate, subject="mine", case=str(number), noticed=value)
        for gate, values in noticed.items()
        for number, value in enumerate(values)
    ]
    write(tmp_path / "proof.jsonl", proof, verb="prove", also=records)
    return [tmp_path / "check.jsonl", tmp_path / "proof.jsonl"]


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A run in which every word of a subject tries to be markup."""
    evidence = Evidence(HOSTILE, float("inf"), "<=", 1.0, HOSTILE, HOSTILE)
    strange = Verdict(HOSTILE, HOSTILE, HOSTILE, 1, "fail", "bound", HOSTILE, (evidence,))
    hole = verdict("unsupported", reason=HOSTILE)
    path = tmp_path / "<title><script>alert(2)<script>.jsonl"
    said = SubjectRecord(subject=HOSTILE, provides=[], versions={HOSTILE: HOSTILE})
    cells = [verdict_record(strange), hole]
    write(path, cells, problems=[HOSTILE], command=[HOSTILE], model=HOSTILE, also=[said])
    return path


@pytest.fixture
def calibrated(tmp_path: Path) -> Path:
    """A calibration of five gates over 20 seeds: exact, near, nearer in a second block, two with alarms."""
    writer = Writer(tmp_path / "calibrate.jsonl")
    names = list("abcde")
    writer.write(header(verb="calibrate", gates=names, subjects=["mine"], planned=120, seeds=20))

    def block(gate: str, first: int, share: float | None, alarms: tuple[int, ...] = ()) -> None:
        told = [AlarmRecord(seed=s, status="fail", cause="bound", reason="kl is 5, must be <= 4") for s in alarms]
        near = ShareRecord(quantity="kl", share=share, observed=1.0, limit=2.0, seed=first + 3 if first == 0 else 15)
        record = BlockRecord(
            gate=gate,
            subject="mine",
            case="some",
            first_seed=first,
            seeds=10,
            counts={"pass": 10 - len(alarms), "fail": len(alarms)},
            alarms=told,
            retried=0,
            shares=[] if gate == "a" else [near],
            seconds=1.0,
        )
        writer.write(record)

    for gate, early, late in (("a", 0, 0), ("b", 0.3, 0.1), ("c", 0.2, 0.9), ("d", 1.7, None), ("e", math.nan, 0.1)):
        block(gate, 0, early, {"d": (4, 9), "e": (5,)}.get(gate, ()))
        block(gate, 10, late)
    writer.close()
    return tmp_path / "calibrate.jsonl"


class TestFile:
    """What is in the file."""

    def test_it_is_self_contained(self, files: list[Path]) -> None:
        """No address but places in the page itself, and a policy that lets nothing load."""
        page = Elements(render_html(files))
        addresses = [
            value for _, attributes in page.found for name, value in attributes.items() if name in {"src", "href"}
        ]
        assert addresses == ["#main"]
        (policy,) = (
            a["content"] for t, a in page.found if t == "meta" and a.get("http-equiv") == "Content-Security-Policy"
        )
        assert "default-src 'none'" in str(policy)
        assert "url(" not in CSS
        assert "@import" not in CSS

    def test_the_policy_names_the_script_and_style_that_are_there(self, files: list[Path]) -> None:
        """Their hashes are those of the text between the tags, as a browser takes them."""
        text = render_html(files)
        for tag in ("script", "style"):
            (body,) = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
            digest = base64.b64encode(hashlib.sha256(body.encode()).digest()).decode()
            assert f"{tag}-src 'sha256-{digest}'" in text

    def test_hostile_words_are_text(self, hostile: Path) -> None:
        """Names, reasons, versions and commands that hold markup make no element, and are read back as they are shown."""
        page = Elements(render_html([hostile]))
        assert [tag for tag, _ in page.found].count("script") == 2
        assert not [name for _, attributes in page.found for name in attributes if name.startswith("on")]
        data = json.loads(page.text("script").partition('"use strict"')[0])
        assert SEEN in data["strings"]
        assert f"gates {SEEN}" in page.text("code")
        shown = " ".join(page.text("th").split())
        assert " ".join(SEEN.split()) in shown

    def test_every_header_cell_says_what_it_heads(self, files: list[Path]) -> None:
        """Each `th` has a scope, each control a label, each section a heading, and the language is named."""
        page = Elements(render_html(files))
        assert all(attributes.get("scope") for tag, attributes in page.found if tag == "th")
        assert all(attributes.get("aria-labelledby") for tag, attributes in page.found if tag in {"section", "dialog"})
        assert {"lang": "en"} in [attributes for tag, attributes in page.found if tag == "html"]
        (picture,) = (attributes for tag, attributes in page.found if tag == "svg")
        assert picture["role"] == "img"
        named = [attributes.get("id") for tag, attributes in page.found if tag in {"title", "desc"}]
        assert str(picture["aria-labelledby"]).split() == [name for name in named if name]

    def test_status_is_never_by_colour_alone(self, files: list[Path]) -> None:
        """Each cell of the table has its status in words."""
        page = Elements(render_html(files))
        words = page.text("button").split("Close")[0].lower()
        for status in ("pass", "fail", "departs", "error", "waived", "unsupported", "skipped"):
            assert status in words

    def test_sensitivities_are_drawn_and_told(self, files: list[Path]) -> None:
        """A mark per distinct value, the numbers in a table, and a gate that notices nothing says so."""
        text = render_html(files)
        assert text.count('class="worst"') == 2
        assert text.count('class="case"') == 1
        assert "1e-03; 1 of 2 cases notice nothing" in text
        assert text.count("nothing that was tried") == 2

    def test_planted_mistakes_are_told(self, files: list[Path]) -> None:
        """Caught and missed, and no verdict on a mutant is taken for one on its host."""
        page = Elements(render_html(files))
        assert "caught in 1 of 1 cases" in page.text("td")
        assert "missed in 0 of 1 cases" in page.text("td")
        assert "2 fail" not in page.text("li")

    def test_changes_since_a_baseline(self, tmp_path: Path) -> None:
        """`--baseline`: what was not asked the same, and each change with its kind in words."""
        old = [verdict(), verdict(case="other"), verdict("fail", gate="packing")]
        write(tmp_path / "old.jsonl", old, seed=3)
        write(tmp_path / "new.jsonl", [verdict(), verdict("fail", case="other"), verdict(gate="packing")])
        once, again = ("".join(render_files([tmp_path / "new.jsonl"], "html", tmp_path / "old.jsonl")) for _ in "12")
        assert once == again
        said = Elements(once)
        assert "Changes since old.jsonl" in said.text("h2")
        assert "seed was 3, is 0" in said.text("li")
        assert "1 new failure, 1 fixed, 1 as before" in said.text("p")
        assert "mine · kl.k3 · other: pass → fail: kl error in 2u·S is nan" in said.text("li")
        assert {"new failure", "fixed"} <= {words for tag, words in said.texts if tag == "span"}

    @pytest.mark.parametrize("form", ["html", "md"])
    def test_the_smallest_inputs_are_told(self, tmp_path: Path, form: ReportFormat) -> None:
        """In words, with the command that judges them again; its file's name is quoted for a shell."""
        file = "check.counterexamples/a b;rm.safetensors"
        shared: dict[str, Any] = {"gate": "kl.k3", "subject": "mine", "case": "other", "seed": 7}
        found = CounterexampleRecord(
            **shared, file=file, words="token 2 of 2: got 0", elements_before=900, elements_after=6, finished=False
        )
        none = CounterexampleRecord(
            **shared, file=None, words="a whole model", elements_before=None, elements_after=None, finished=None
        )
        write(tmp_path / "run.jsonl", [verdict("fail", case="other")], also=[found, none])
        text = html.unescape("".join(render_files([tmp_path / "run.jsonl"], form, None)))
        assert "gates replay 'check.counterexamples/a b;rm.safetensors'" in text
        assert "900 → 6 numbers, when the time was over" in text
        assert "token 2 of 2: got 0" in text
        assert "not made smaller: a whole model" in text

    def test_a_calibration_is_drawn_and_told(self, calibrated: Path) -> None:
        """A disc at each gate's worst share, a cross at one with false alarms, seeds and alarms in words and in a table."""
        text = render_html([calibrated])
        said = Elements(text)
        drawn = {a["class"]: 0 for tag, a in said.found if tag in {"circle", "path"}}
        for tag, attributes in said.found:
            if tag in {"circle", "path"}:
                drawn[attributes["class"]] += 1
        assert drawn == {"worst": 2, "alarmed": 2, "alarm": 2}
        left = next(float(str(a["x1"])) for tag, a in said.found if tag == "line" and a["class"] == "base")
        limit = next(float(str(a["x1"])) for tag, a in said.found if tag == "line" and a["class"] == "limit")
        places = [float(str(a["cx"])) for tag, a in said.found if tag == "circle"]
        shares = [round((x - left) / (limit - left), 2) for x in places]
        assert shares == [0.3, 0.9, 1.25, 1.25]  # of b, c, d (1.7) and e (no number): what is beyond stands at the edge
        assert "20 seeds, 2 with a false alarm" in said.text("text")
        assert "gates check d --seed 4 --subject mine --quick" in said.text("code")
        cells = re.findall(r"<tr><th scope=\"row\">(\w)</th>(.*?)</tr>", text)
        told = {name: re.findall(r"<td>(.*?)</td>", row) for name, row in cells}
        # the exact 95% bound is 1 − 0.05^(1/n) without an alarm, 0.139 for n = 20
        assert told["a"] == ["20", "20", "0", "0.14", "none", ""]
        assert told["c"] == ["20", "20", "0", "0.14", "0.9", "kl: mine, some, seed 15"]
        assert told["d"][2:] == ["2", "0.28", "1.7", "kl: mine, some, seed 3"]
        assert told["e"][4] == "not finite"
        assert "incomplete: 100 of 120" in said.text("summary")

    def test_a_page_of_a_calibration_alone(self, calibrated: Path) -> None:
        """It has no table of verdicts, no count of them, and every picture has a title and a description."""
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
        """At least 4.5 to 1 (WCAG 2.2, 1.4.3) for every text colour on the grounds that it stands on."""
        blocks = re.findall(r":root \{(.*?)\}", CSS, re.DOTALL)
        colours = dict(re.findall(r"--([\w-]+): (#\w+);", blocks[scheme == "dark"]))

        def luminance(text: str) -> float:
            digits = text[1:] if len(text) == 7 else "".join(2 * digit for digit in text[1:])
            parts = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
            linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
            return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

        pairs = [(name, f"{name}-ground") for name in ("pass", "fail", "departs", "error", "waived")]
        pairs += [(name, ground) for name in ("text", "quiet") for ground in ("ground", "raised")]
        pairs += [(name, "ground") for name, _ in pairs[:5]] + [("text", "fail-ground"), ("accent", "ground")]
        for front, back in pairs:
            low, high = sorted((luminance(colours[front]), luminance(colours[back])))
            assert (high + 0.05) / (low + 0.05) >= 4.5, (front, back)


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A headless Chromium."""
    if PROGRAM is None:
        pytest.skip("chromium is not installed: Debian's package chromium")
    with browser(tmp_path_factory.mktemp("profile")) as found:
        yield found


class TestBrowser:
    """What a reader gets."""

    def page(self, chromium: Browser, paths: list[Path], folder: Path, **how: Any) -> Browser:
        (folder / "page.html").write_text(render_html(paths), encoding="utf-8")
        chromium.open(folder / "page.html", **how)
        return chromium

    def wrong(self, chromium: Browser) -> list[Any]:
        """What the console says, exceptions and broken policies included, and requests beside the file itself."""
        chromium.value("1")
        said = [e["params"] for e in chromium.events if e["method"] in {"Log.entryAdded", "Runtime.exceptionThrown"}]
        asked = [e["params"]["request"]["url"] for e in chromium.events if e["method"] == "Network.requestWillBeSent"]
        return [*said, *asked[1:]]

    def test_the_keyboard_is_enough(self, chromium: Browser, files: list[Path], tmp_path: Path) -> None:
        """Arrows move between cells, Enter shows the evidence, Escape leaves it where one was."""
        page = self.page(chromium, files, tmp_path)
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
        assert "✗ fail other" in first
        assert "kl error in 2u·S is nan, must be <= 4 (at [1])" in first
        page.press("Escape")
        assert not page.value("document.querySelector('dialog').open")
        assert page.value(where) == "1/0"
        assert self.wrong(page) == []

    def test_tab_reaches_the_table_once(self, chromium: Browser, files: list[Path], tmp_path: Path) -> None:
        """One stop for all cells; the focus is seen."""
        page = self.page(chromium, files, tmp_path)
        stops: list[Any] = []
        for _ in range(40):
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
        files: list[Path],
        tmp_path: Path,
        action: str,
        gates: list[str] | None,
        columns: list[str],
    ) -> None:
        """By family, by subject, and what failed; the number of gates is told to screen readers."""
        page = self.page(chromium, files, tmp_path)
        page.value(f"{action}; document.getElementById('filters').dispatchEvent(new Event('input'))")
        seen = "[...document.querySelectorAll('{}')].filter(e => e.offsetParent).map(e => e.textContent)"
        found = page.value(seen.format("#matrix th[scope=row]"))
        assert found == (gates or ["kl.k1", "kl.k3", "loss.grpo", "packing", "ratio", "weights"])
        assert page.value(seen.format("#matrix thead th[data-column]")) == columns
        assert page.value("shown.textContent") == f"{len(found)} of 6 gates, {len(columns)} subjects"
        assert page.value("shown.getAttribute('role')") == "status"

    def test_a_screen_reader_gets_names(self, chromium: Browser, files: list[Path], tmp_path: Path) -> None:
        """Every control has a name, and the table has row and column headers."""
        page = self.page(chromium, files, tmp_path)
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
        assert ("button", "FAIL 1 of 2") in [(role, name.strip()) for role, name in named]

    def test_a_calibration_and_its_numbers(
        self, chromium: Browser, files: list[Path], calibrated: Path, tmp_path: Path
    ) -> None:
        """A screen reader gets the picture as one image with name and description; Enter opens the table of numbers."""
        page = self.page(chromium, [*files, calibrated], tmp_path)
        nodes = page.send("Accessibility.getFullAXTree")["nodes"]
        images = [node for node in nodes if not node["ignored"] and node["role"]["value"] == "image"]
        assert len(images) == 2
        for image in images:
            assert "the table below has the numbers" in image["name"]["value"]
        numbers = "document.querySelector('section[aria-labelledby=calibration-1] details')"
        page.value(f"{numbers}.querySelector('summary').focus()")
        page.press("Enter")
        assert page.value(f"{numbers}.open")
        assert page.value(f"{numbers}.querySelectorAll('tbody tr').length") == 5
        assert self.wrong(page) == []

    def test_dark_and_light(self, chromium: Browser, files: list[Path], tmp_path: Path) -> None:
        """The page follows what the reader prefers."""
        ground = "getComputedStyle(document.body).backgroundColor"
        assert self.page(chromium, files, tmp_path).value(ground) == "rgb(255, 255, 255)"
        assert self.page(chromium, files, tmp_path, dark=True).value(ground) == "rgb(20, 23, 28)"

    def test_a_narrow_window_scrolls_the_tables_only(
        self, chromium: Browser, files: list[Path], tmp_path: Path
    ) -> None:
        """At 400 pixels the page itself is no wider (WCAG 2.2, 1.4.10)."""
        page = self.page(chromium, files, tmp_path, width=400)
        assert page.value("document.documentElement.scrollWidth") <= 400

    def test_hostile_words_run_nothing(self, chromium: Browser, hostile: Path, tmp_path: Path) -> None:
        """No dialog of a planted script, no broken policy, and the evidence shows the words as they are."""
        page = self.page(chromium, [hostile], tmp_path)
        page.value("document.querySelector('td.fail button').click()")
        assert page.value("document.querySelectorAll('script').length") == 2
        assert SEEN in page.value("document.getElementById('cases').textContent")
        assert not [event for event in page.events if event["method"] == "Page.javascriptDialogOpening"]
        assert self.wrong(page) == []


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a hundred thousand verdicts with six pieces of evidence each, as in recorded runs: 240 MB."""
    folder = tmp_path_factory.mktemp("large")
    text = verdict("pass").model_dump(mode="json")
    with (folder / "large.jsonl").open("w") as file:
        whole = write(folder / "small.jsonl", [verdict()], complete=False, planned=100_000)
        file.write(whole.header.model_dump_json() + "\n")
        because = "one rounding of every operation, times the condition of the sum, as derived in the text " * 2
        for number in range(100_000):
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
    [("text", 1e4), ("github", 1e4), ("md", 5e4), ("html", 1e7), ("junit", 5e7), ("json", 2e8), ("jsonl", 2e8)],
)
def test_a_hundred_thousand_verdicts(large: Path, tmp_path: Path, form: str, least: float) -> None:
    """At most 10 s of processor time and 1 GiB of memory in every form.

    Processor time, for other programs may be running; it is that of the whole command, start included.
    """
    code = (
        "import resource, sys\nfrom gates import cli\ntry:\n    cli.main()\nexcept SystemExit as ended:\n"
        "    assert not ended.code\nused = resource.getrusage(resource.RUSAGE_SELF)\n"
        "print(used.ru_utime + used.ru_stime, used.ru_maxrss * (1 if sys.platform == 'darwin' else 1024))\n"
    )
    out = tmp_path / "out"
    command = [sys.executable, "-c", code, "report", str(large), "--format", form, "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    seconds, memory = map(float, done.stdout.split())
    assert out.stat().st_size > least
    assert seconds < 10.0
    assert memory < 2.0**30
