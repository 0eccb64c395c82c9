"""Declared choices that no case uses are reported; choices that a subject leaves out are not."""

from pathlib import Path
from typing import Any

import pytest
from command_line import here

from gates.provided import Provided
from gates.registry import load
from gates.report.declarations import unasked, undeparted

SUBJECT = """
def group_advantages(**inputs):
    raise NotImplementedError("not yet")
OPS = {"group_advantages": group_advantages}
CONVENTIONS = {"group_advantages": {"colour": ("red",)}}
"""


def said(op: str, conventions: dict[str, tuple[Any, ...]]) -> list[str]:
    """Return the notes on one op of a subject `mine`."""
    return list(unasked("mine", {op: Provided(op, conventions)}, load().gates.values()))


@pytest.mark.parametrize(
    ("op", "conventions", "words"),
    [
        ("group_advantage", {}, "mine provides 'group_advantage', which no gate asks for; did you mean 'group_adv"),
        ("group_advantages", {"scal": ("group",)}, "name 'scal', which no case asks for; did you mean 'scale'?"),
        ("group_advantages", {"xyz": ("group",)}, "name 'xyz', which no case asks for; known are baseline, ddof,"),
        ("group_advantages", {"scale": ("groups",)}, "have scale 'groups', which no case asks for; cases ask for 'bat"),
        ("group_advantages", {"scale": ()}, "have scale nothing, which no case asks for"),
        (
            "token_kl",
            {"estimator": ("k1", "K2", "k3")},
            "have estimator 'K2', which no case asks for; did you mean 'k2'?",
        ),
        (
            "group_advantages",
            {"scale": ("group", "bacth")},
            "have scale 'bacth', which no case asks for; did you mean 'b",
        ),
    ],
    ids=["op", "convention", "far", "choice", "no choice", "one of several by its case", "by a letter"],
)
def test_a_misspelt_declaration_is_reported(op: str, conventions: dict[str, tuple[Any, ...]], words: str) -> None:
    """The note is one sentence with the nearest name, or with all names if none is near."""
    (sentence,) = said(op, conventions)
    assert words in sentence


@pytest.mark.parametrize(
    ("op", "conventions"),
    [
        ("group_advantages", {"scale": ("group",), "ddof": (1, None)}),
        ("group_advantages", {"scale": ("group", "rows")}),
        ("group_advantages", {"scale": ("group", "groups")}),
        ("policy_loss", {"arithmetic": ("float32",)}),
        ("model_hash", {}),
    ],
    ids=["some", "one more", "one more, near one that is declared", "no to the only choice", "asked outside gates"],
)
def test_a_correct_declaration_gives_no_note(op: str, conventions: dict[str, tuple[Any, ...]]) -> None:
    """A subject may declare some of the choices, and choices that no case uses."""
    assert said(op, conventions) == []


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("token_kl[k3", "names 'token_kl[k3', which is the name of no gate; did you mean 'token_kl[k3]' or "),
        ("kl.k3.matches-definition", "which is the name of no gate; `gates explain GATE` says the name of each"),
    ],
    ids=["near", "far"],
)
def test_a_deviation_under_an_unknown_gate_is_reported(key: str, words: str) -> None:
    """Its documented deviation would be treated as undocumented."""
    gates_ = list(load().gates.values())
    (sentence,) = undeparted("mine", {key: "README", "token_kl[k1]": "README"}, gates_)
    assert sentence.startswith("DEPARTURES_DOCUMENTED of mine ")
    assert words in sentence


@pytest.mark.parametrize("form", ["text", "jsonl"])
def test_check_reports_it_on_stderr(tmp_path: Path, form: str) -> None:
    """`gates check` prints the note to stderr in every format, with the same exit code."""
    (tmp_path / "mine.py").write_text(SUBJECT)
    done = here(
        "check", "advantages.matches-definition", "--quick", "--subject", "./mine.py", "--format", form, cwd=tmp_path
    )
    assert done.returncode == 3
    assert "note: the conventions of group_advantages of mine name 'colour', which no case asks for" in done.stderr
    assert "note:" not in done.stdout
