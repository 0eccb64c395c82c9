"""A peer's declaration NAME.toml and its comparison with the installed package."""

import ast
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from gates.subjects.peers import coverage, declared, environments, public_names, reproduce
from gates.subjects.peers.discovery import Peer, PeerError
from gates.subjects.peers.environments import PeerEnv
from gates_reference.algorithms import AXES

MODULE = '''
"""A library."""
from dataclasses import dataclass

KNOWN = ("grpo", "dapo")

@dataclass
class Config:
    """Fields."""

    beta: float = 0.0
    loss_type: str = "grpo"
    _hidden: int = 0
    plain = 1

    def check(self):
        if self.loss_type not in ("grpo", "dapo") and self.loss_type != "none":
            raise ValueError

    def _private(self): ...

@register("clip")
def loss(x): ...

register(Names.GAE)(loss)

class Trainer:
    def __init__(self, beta, *, steps=1, _hidden=0): ...

def _inner(): ...
'''
FINDING = """
[[finding]]
id = "fake-beta"
class = "trap"
grade = "correct"
use = "default"
ops = []
where = "fake/core.py:11"
quote = "beta"
says = "Beta is 0."
computes = ""
number = "0"
consequence = "No KL."
repro = "assert 1 == 1"
"""
COVERAGE = """
[[coverage]]
source = "fields fake.core:Config"
[coverage.rows]
beta = ["departs", "fake-beta"]
"loss_*" = ["judged", "policy_loss"]
"""


@pytest.fixture
def peer(tmp_path: Path) -> Peer:
    """Return a peer with an empty declaration."""
    requirements = tmp_path / "fake.txt"
    requirements.write_text("")
    return Peer("fake", "fake", "fake", requirements)


@pytest.fixture
def environment(tmp_path: Path) -> PeerEnv:
    """Return an environment with the package."""
    folder = tmp_path / "env" / "lib" / "python3.11" / "site-packages" / "fake"
    folder.mkdir(parents=True)
    (folder / "core.py").write_text(MODULE)
    return PeerEnv(tmp_path / "env", tmp_path / "env" / "bin" / "python", ready=True)


def declare(peer: Peer, text: str) -> declared.Conformance:
    declared.file_of(peer).write_text(text)
    return declared.conformance(peer)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("fields fake.core:Config", ["beta", "loss_type"]),
        ("functions fake.core", ["loss"]),
        ("classes fake.core", ["Config", "Trainer"]),
        ("methods fake.core:Config", ["check"]),
        ("parameters fake.core:loss", ["x"]),
        ("parameters fake.core:Trainer", ["beta", "steps"]),
        ("values fake.core:loss_type", ["grpo", "dapo", "none"]),
        ("registered fake.core:register", ["clip", "GAE"]),
    ],
)
def test_names_are_read_without_importing(environment: PeerEnv, source: str, expected: list[str]) -> None:
    """The file is parsed, so its imports may be missing."""
    assert public_names.names(source, coverage.site_packages(environment)) == expected


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("colours fake.core", "'colours' must be one of fields"),
        ("functions fake.other", "has no module fake.other"),
        ("fields fake.core:Other", "no class Other"),
        ("parameters fake.core:other", "no function other"),
        ("parameters fake.core:Config", "no class Config with an __init__"),
    ],
)
def test_an_unknown_source_is_an_error(environment: PeerEnv, source: str, reason: str) -> None:
    with pytest.raises(PeerError, match=reason):
        public_names.names(source, coverage.site_packages(environment))


def test_every_name_has_a_row(peer: Peer, environment: PeerEnv) -> None:
    """An exact row or one of a glob; the finding keeps its line."""
    declare(peer, COVERAGE + FINDING)
    covered = coverage.covered(peer, environment)
    assert [(row.name, row.status) for row in covered.rows] == [("beta", "departs"), ("loss_type", "judged")]
    assert covered.problems == ()
    assert covered.count("judged") == 1


def test_new_names_lost_names_and_moved_lines_are_problems(peer: Peer, environment: PeerEnv) -> None:
    declare(peer, COVERAGE.replace("loss_*", "gone_*") + FINDING.replace("core.py:11", "core.py:12"))
    problems = coverage.covered(peer, environment).problems
    assert [problem.partition(": ")[2] for problem in problems] == [
        "loss_type has no row; give it one in fake.toml",
        "the row 'gone_*' matches no name of this version; remove it",
        "fake/core.py:12 does not hold 'beta'",
    ]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[[coverage]]\nsource = 1\n", "coverage.0"),
        (FINDING.replace("trap", "opinion"), "finding.0.class"),
        (FINDING.replace("assert 1 == 1", "print(1)"), "asserts nothing"),
        (FINDING.replace('"assert 1 == 1"', "'''" + "assert 1\n" * 21 + "'''"), "21 lines, must have at most 20"),
        (FINDING.replace("trap", "numeric").replace('"correct"', '"wrong"'), "fake-beta is numeric and wrong"),
        (FINDING.replace('"default"', '"seldom"'), "finding.0.use"),
        (FINDING + FINDING, "fake-beta stands there twice"),
        (COVERAGE, "'fake-beta', which is no finding"),
        (COVERAGE.replace('"judged", "policy_loss"', '"seldom", "hard"'), "coverage.0.rows"),
        (
            COVERAGE.replace('"judged", "policy_loss"', '"out of scope", "hard"'),
            "loss_.*: 'hard' is no kind of what is out of",
        ),
        (COVERAGE.replace('"judged", "policy_loss"', '"judged elsewhere", "in trl"'), "must be PEER: OP; is 'in trl'"),
        ("not toml", "fake.toml"),
    ],
)
def test_a_malformed_declaration_names_the_field(peer: Peer, text: str, reason: str) -> None:
    with pytest.raises(PeerError, match=reason):
        declare(peer, text)


def test_a_peer_without_a_file_declares_nothing(peer: Peer) -> None:
    assert declared.conformance(peer) == declared.Conformance()


def test_programs_run_isolated(peer: Peer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the peer's interpreter with one thread: exit code 0 means "holds"; the output is kept."""
    monkeypatch.setenv(environments.CACHE_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setattr(environments, "peers", lambda: {"fake": peer})
    finding = declare(peer, FINDING).finding[0]
    with pytest.raises(PeerError, match="gates peers sync fake"):
        reproduce.run("fake", finding)
    environments.sync("fake", on_line=lambda _: None)
    shows = finding.model_copy(update={"repro": "import os\nprint(os.environ['OMP_NUM_THREADS'])\nassert True\n"})
    breaks = finding.model_copy(update={"id": "fake-other", "repro": "assert 1 == 2, 'one is not two'\n"})
    first, second = reproduce.run_all("fake", (shows, breaks), jobs=2)
    assert (first.holds, first.output) == (True, "1")
    assert not second.holds
    assert "one is not two" in second.output


@pytest.mark.skipif(sys.platform != "linux", reason="programs run as forks on Linux only")
def test_half_an_import_leaves_nothing_behind(peer: Peer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a failed import loaded of its package is not there for a program that prepares the import itself."""
    monkeypatch.setenv(environments.CACHE_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setattr(environments, "peers", lambda: {"fake": peer})
    environments.sync("fake", on_line=lambda _: None)
    package = coverage.site_packages(environments.environment("fake")) / "half"
    package.mkdir()
    (package / "__init__.py").write_text("import half.part\nimport not_installed\n")
    (package / "part.py").write_text("VALUE = 1\n")
    program = (
        "import sys, types\nassert 'half.part' not in sys.modules\nsys.modules['half'] = types.ModuleType('half')\n"
        f"sys.modules['half'].__path__ = [{str(package)!r}]\nfrom half.part import VALUE\nassert VALUE == 1\n"
    )
    finding = declare(peer, FINDING).finding[0].model_copy(update={"repro": program})
    other = finding.model_copy(update={"id": "fake-other"})

    def alone(_: str, finding: declared.Finding) -> reproduce.Reproduced:
        raise AssertionError(f"{finding.id} did not hold as a fork")

    monkeypatch.setattr(reproduce, "run", alone)
    assert all(outcome.holds for outcome in reproduce.run_all("fake", (finding, other), jobs=2))


SHIPPED = {name: peer for name, peer in environments.peers().items() if peer.subject}


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_declarations_are_valid(name: str) -> None:
    """Each is well-formed, names findings after the peer, and calls no documented choice a bug."""
    known = declared.conformance(SHIPPED[name])
    assert known.coverage, f"{declared.file_of(SHIPPED[name])} covers nothing"
    assert [finding.id for finding in known.finding if not finding.id.startswith(f"{name}-")] == []
    assert [
        finding.id for finding in known.finding if finding.kind == "bug" and finding.grade == "correct" and finding.ops
    ] == []


@pytest.mark.parametrize("name", SHIPPED)
def test_a_finding_says_no_more_than_its_program_shows(name: str) -> None:
    """At most forty-five words: what was false in findings stood in clauses that no program asserted."""
    lengths = {
        finding.id: len(f"{finding.says} {finding.consequence}".split())
        for finding in declared.conformance(SHIPPED[name]).finding
    }
    assert {id_: words for id_, words in lengths.items() if words > 45} == {}


CHOICES = {choice.text for words in AXES.values() for choice in words.values()}


def is_choice(departure: str) -> bool:
    """Return whether a departure is another choice on an axis: "grpo, token mean"."""
    return departure.partition(", ")[2] in CHOICES


def test_the_same_departure_has_one_class_in_every_library() -> None:
    """What one library is charged with is no convention of another; another choice on an axis is nobody's bug."""
    classes: dict[str, set[str]] = defaultdict(set)
    for peer in SHIPPED.values():
        for finding in declared.conformance(peer).finding:
            for departure in finding.departures:
                classes[departure].add(finding.kind)
    assert classes
    assert {name: kinds for name, kinds in classes.items() if not is_choice(name) and len(kinds) > 1} == {}
    assert [name for name, kinds in classes.items() if is_choice(name) and "bug" in kinds] == []


def composed_choices(peer: Peer) -> Iterator[str]:
    """Yield the departures from presets that the variants of a peer declare: "grpo, token mean"."""
    for _, settings in peer.variants.values():
        for axis in settings.keys() & AXES.keys():
            yield f"{settings['algorithm']}, {AXES[axis][str(settings[axis])].text}"


@pytest.mark.parametrize("name", SHIPPED)
def test_declared_choices_are_departures_of_findings(name: str) -> None:
    """An adapter that judges its library as another composition than the published one says so on the page."""
    said = {departure for finding in declared.conformance(SHIPPED[name]).finding for departure in finding.departures}
    assert set(composed_choices(SHIPPED[name])) - said == set()


def test_variants_declare_choices() -> None:
    assert {"grpo, no bound", "rloo, no ratio"} <= set(composed_choices(SHIPPED["mlxrl"]))


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_rows_match_the_installed_package(name: str) -> None:
    """In an existing environment no public name is unlisted and no finding's line has moved."""
    environment = environments.environment(name)
    if not environment.ready:
        pytest.skip(f"no environment; `gates peers sync {name}` makes it")
    assert coverage.covered(SHIPPED[name], environment).problems == ()


def placeholders(peer: Peer) -> set[str]:
    """Return the packages for which an adapter lets empty modules stand."""
    assert peer.subject is not None
    calls = [node for node in ast.walk(ast.parse(peer.subject.read_bytes())) if isinstance(node, ast.Call)]
    stood = [call for call in calls if isinstance(call.func, ast.Name) and call.func.id == "stand_in"]
    constants = [node.value for call in stood for node in ast.walk(call) if isinstance(node, ast.Constant)]
    return {str(name).partition(".")[0] for name in constants}


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shim_marks_every_cell(name: str) -> None:
    """A setting of every op names each package for which an adapter lets an empty module stand."""
    chosen = [setting for setting in declared.conformance(SHIPPED[name]).setting if declared.EVERY in setting.ops]
    words = " ".join(setting.chosen for setting in chosen if setting.chosen.startswith("shim: "))
    assert {package for package in placeholders(SHIPPED[name]) if package not in words} == set()


def test_placeholders_are_found() -> None:
    assert {"deepspeed", "vllm"} <= placeholders(SHIPPED["openrlhf"])


def test_a_setting_of_every_op_names_each() -> None:
    assert declared.named("fake@variant", "policy_loss[grpo]", (declared.EVERY,))
