"""The pages on adding something are true: their diffs apply, and what they add works in a copy of the checkout."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

import pytest
from checkouts import ROOT, Checkout, copied, environment

from gates.results.jsonl import Results, read


@dataclass(frozen=True, slots=True)
class Page:
    """A page that adds a gate with a mutant, and the most files that its diffs may change, pages apart."""

    name: str
    gate: str
    mutant: str
    files: int
    crate: str = ""  # tests of the crate, where it also changes rlkernels; only the long test builds that

    @property
    def path(self) -> str:
        """The page."""
        return f"docs/adding-{self.name}.md"


PAGES = (
    Page("an-algorithm", "loss.cispo-seq.matches-definition", "loss.cispo-seq-token-ratio", 6),
    Page("a-gate", "advantages.gae.lambda-one-is-the-return", "gae.undiscounted-trace", 1),
    Page("a-kernel", "advantages.returns.match-definition", "returns.next-token-on", 10, crate="advantages"),
)
pages = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def runs(checkout: Checkout, *words: str, code: int = 0) -> Results:
    """Run a verb of Gates in the copy, and return what it recorded."""
    folder = checkout.folder / "out"
    checkout.run("-m", "gates", *words, "--out", folder, code=code)
    (path,) = folder.glob(f"{words[0]}-*.jsonl")
    return read(path)


@pages
def test_the_gate_finds_right_code_correct_and_its_mutant_wrong(page: Page, tmp_path: Path) -> None:
    """The diffs touch few files, and are in the style of the repository."""
    checkout = copied(tmp_path)
    changed = checkout.apply(page.path)
    assert len([name for name in changed if not name.startswith("docs/")]) <= page.files
    python = [name for name in changed if name.endswith(".py")]
    checkout.run("-m", "ruff", "check", "--quiet", *python)
    checkout.run("-m", "ruff", "format", "--check", "--quiet", *python)
    checked = runs(checkout, "check", page.gate, "--subject", "numpy", "--strict")
    assert {(verdict.gate, verdict.status) for verdict in checked.judged} == {(page.gate, "correct")}
    proved = runs(checkout, "prove", page.gate, "--quick")
    assert [(mutant.mutant, mutant.state) for mutant in proved.mutants] == [(page.mutant, "caught")]
    assert "wrong" in {verdict.status for verdict in proved.verdicts if verdict.mutant == page.mutant}


@pages
@pytest.mark.long
@pytest.mark.timeout(3600)
def test_the_consistency_tests_hold(page: Page, tmp_path: Path) -> None:
    """After `make generate` the fast tests of the copy pass; a kernel is built, and its gate finds it correct too."""
    checkout = copied(tmp_path)
    checkout.apply(page.path)
    if page.crate:
        checkout.build_kernels(page.crate)
        checked = runs(checkout, "check", page.gate, "--subject", "rlkernels", "--strict")
        assert "correct" in {verdict.status for verdict in checked.judged if verdict.subject == "rlkernels"}
    holds(checkout)


def holds(checkout: Checkout) -> None:
    """Write the generated pages of the copy, and run its fast tests without the one that measures a time."""
    checkout.run("tools/generate.py")
    checkout.run("-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", "-m", "fast and not alone")


PEER = "docs/adding-a-peer.md"


@pytest.fixture
def toyrl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Checkout:
    """A copy with the page's peer, and the peer's environment with the page's library."""
    checkout = copied(tmp_path / "checkout")
    checkout.apply(PEER)
    monkeypatch.setenv("GATES_CACHE_DIR", str(tmp_path / "cache"))
    code = "from gates.subjects.peers import environments; print(environments.environment('toyrl').path)"
    folder = Path(checkout.run("-c", code).strip())
    environment(folder)
    (site,) = folder.glob("lib/python*/site-packages")
    (library,) = re.findall(
        r"^```python\n# toyrl/__init__.py\n(.*?)^```", (ROOT / PEER).read_text(), re.DOTALL | re.MULTILINE
    )
    for name, text in {
        "toyrl/__init__.py": library,
        "toyrl-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: toyrl\nVersion: 1.0\n",
    }.items():
        (site / name).parent.mkdir()
        (site / name).write_text(text)
    (folder / "ready.json").write_text(json.dumps({"versions": {"toyrl": "1.0"}}))
    return checkout


def test_the_peer_is_judged_and_its_records_agree(toyrl: Checkout) -> None:
    """What is right in the library is correct, what is wrong is wrong, and `gates peers check` finds both declared."""
    checked = runs(toyrl, "check", "advantages", "kl", "--subject", "toyrl", "--no-minimise", code=1)
    judged = {verdict.op: verdict.status for verdict in checked.judged if verdict.status in {"correct", "wrong"}}
    assert judged == {"group_advantages": "correct", "token_kl[k3]": "wrong"}
    assert "0 problems" in toyrl.run("-m", "gates", "peers", "check", "toyrl", "--quick")


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_the_consistency_tests_hold_with_the_peer(toyrl: Checkout) -> None:
    """As for the other pages."""
    holds(toyrl)
