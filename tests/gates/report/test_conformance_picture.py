"""The picture of the matrix, and the tools that record what the page needs beside grades."""

import sys
from pathlib import Path
from xml.etree import ElementTree as ET

from libraries import finding, grade, header

from gates.report.conformance import picture
from gates.report.conformance.cells import matrix
from gates.results.conformance_records import ConformanceResults

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tools"))

import peer_common  # noqa: E402 - after the path
import peer_facts  # noqa: E402

SVG = "{http://www.w3.org/2000/svg}"


def test_a_square_has_its_grade_as_colour_sign_and_words() -> None:
    library = ConformanceResults(
        header("<fake>"),
        [
            grade("<fake>", "policy_loss[grpo, token mean]", "correct"),
            grade("<fake>", "token_kl[k3]", "wrong", ("k3",)),
        ],
        findings=[finding("k3", "bug").model_copy(update={"use": "default"})],
    )
    image = ET.fromstring(picture.render([library], matrix([library], {})))  # noqa: S314  our own
    squares = {group.findtext(f"{SVG}title"): group for group in image.iter(f"{SVG}g")}
    assert set(squares) == {
        "<fake>, GRPO: correct",
        "<fake>, KL: wrong",
        "<fake>, configuration: not judged",
    }
    assert squares["<fake>, GRPO: correct"].findtext(f"{SVG}text") == "✓ as"
    rectangle = squares["<fake>, KL: wrong"].find(f"{SVG}rect")
    assert rectangle is not None
    assert rectangle.get("class") == "wrong"


def test_only_cases_that_all_were_asked_are_compared() -> None:
    found = {
        "gae": {
            "a": {("g", "1"): "correct", ("g", "2"): "fragile"},
            "b": {("g", "2"): "correct", ("g", "3"): "fragile"},
        },
        "kto_loss": {"a": {("g", "1"): "fragile"}},
    }
    assert peer_common.common(found) == {"gae": {"cases": 1, "libraries": {"a": {"fragile": 1}, "b": {}}}}


def test_names_of_a_package_are_found_without_importing_it(tmp_path: Path) -> None:
    """Files, classes, functions, arguments and single words in quotes; no sentence, and no test of the package."""
    package = tmp_path / "fake"
    (package / "tests").mkdir(parents=True)
    (package / "grpo.py").write_text(
        'import nothing\n\nresume: bool = False\ndef loss(beta):\n    return "dr_grpo", "as in PPO", f(top_p=1)\n'
    )
    (package / "tests" / "rloo.py").write_text("")
    (package / "broken.py").write_text("def (")
    assert dict(peer_facts.identifiers(package)) == {
        "broken": "fake/broken.py:1",
        "grpo": "fake/grpo.py:1",
        "loss": "fake/grpo.py:4",
        "beta": "fake/grpo.py:4",
        "resume": "fake/grpo.py:3",
        "top_p": "fake/grpo.py:5",
        "dr_grpo": "fake/grpo.py:5",
    }
