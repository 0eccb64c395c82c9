"""Links and commands of documents exist."""

import re
import subprocess
from pathlib import Path

import pytest
import typer.main

from gates.cli.verbs import app

ROOT = Path(__file__).parents[2]
LISTED = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
DOCUMENTS = [name for name in LISTED.splitlines() if name.startswith("docs/") or "/" not in name]
OF_TODAY = [name for name in DOCUMENTS if name != "CHANGELOG.md"]  # a changelog also mentions removed commands

pytestmark = pytest.mark.fast


def text_of(name: str) -> str:
    """Return the document's text."""
    return (ROOT / name).read_text(encoding="utf-8")


def shown(name: str) -> list[str]:
    """Return the lines of its command blocks and its inline code."""
    text = text_of(name)
    blocks = re.findall(r"^```(?:sh)?\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    inline = re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE))
    return [line.strip() for block in blocks for line in block.splitlines()] + inline


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_linked_file_exists(name: str) -> None:
    """Relative links point to files or folders of the checkout."""
    links = re.findall(r"\]\((?!https?://|#|mailto:)([^)#\s]+)", text_of(name))
    missing = [link for link in links if not (ROOT / name).parent.joinpath(link).exists()]
    assert not missing, f"{name} links to {missing}, must be files of this checkout"


@pytest.mark.parametrize("name", OF_TODAY)
def test_every_make_target_exists(name: str) -> None:
    """`make X` names a target."""
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    mentioned = {match.group(1) for line in shown(name) if (match := re.match(r"make ([a-z]+)", line))}
    assert mentioned <= targets, f"{name} shows targets that the Makefile lacks: {sorted(mentioned - targets)}"


@pytest.mark.parametrize("name", OF_TODAY)
def test_every_command_exists(name: str) -> None:
    """`gates VERB` names a verb, with its subcommand if it is a group."""
    verbs = typer.main.get_command(app)
    wrong = []
    for line in shown(name):
        arguments = re.sub(r"^\.venv/bin/", "", line).split()
        if len(arguments) > 1 and arguments[0] == "gates" and re.fullmatch(r"[a-z]+", arguments[1]):
            group = getattr(verbs, "commands", {}).get(arguments[1])
            below = getattr(group, "commands", {})
            if group is None or (below and len(arguments) > 2 and arguments[2].isalpha() and arguments[2] not in below):
                wrong.append(line)
    assert not wrong, f"{name} shows commands that `gates --help` does not list: {wrong}"


def test_the_citation_has_the_version_of_the_package() -> None:
    """CITATION.cff and pyproject.toml are released together."""
    (cited,) = re.findall(r'^version: "(.*)"$', text_of("CITATION.cff"), re.MULTILINE)
    assert f'version = "{cited}"' in text_of("pyproject.toml")
