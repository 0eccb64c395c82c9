"""A peer is defined by a requirements file and, if it is judged, an adapter."""

from pathlib import Path

import pytest

from gates.model import ConfigurationError
from gates.registry import Registry
from gates.subjects import catalogue
from gates.subjects.peers import discovery, environments

HEADER = "# distribution: two-words\n# import: two.words\n# purpose: timed: its rollouts\n"
NOT_ADAPTERS = {
    "__init__.py",
    "coverage.py",
    "declared.py",
    "discovery.py",
    "environments.py",
    "installer.py",
    "public_names.py",
    "reproduce.py",
    "scope.py",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Use an empty folder of peers and an empty cache."""
    monkeypatch.setattr(environments, "HERE", tmp_path)
    monkeypatch.setattr(environments, "peers", environments.peers.__wrapped__)
    monkeypatch.setenv(environments.CACHE_VARIABLE, str(tmp_path / "cache"))
    return tmp_path


def write(folder: Path, name: str, adapter: str | None = None, header: str = HEADER) -> Path:
    """Add a peer; return its adapter's path, which exists if a text is given."""
    (folder / f"{name}.txt").write_text(f"{header}two-words==1.0\n")
    file = folder / f"{name.replace('-', '_')}.py"
    if adapter is not None:
        file.write_text(adapter)
    return file


def subjects() -> Registry:
    """Return a registry of the shipped subjects and the peers of the folder."""
    registry = Registry()
    catalogue.register(registry)
    return registry


class TestDiscover:
    """Discovery in a folder."""

    def test_header_describes_the_peer(self, folder: Path) -> None:
        """A peer has the three lines and the file's name, and no subject."""
        write(folder, "words")
        (peer,) = discovery.discover(folder).values()
        assert peer == discovery.Peer(
            "words", "two-words", "two.words", folder / "words.txt", None, "timed: its rollouts", {}
        )

    def test_listed_dependencies_are_complete(self, folder: Path) -> None:
        """With a fourth line of the header nothing else is installed; another value is refused."""
        write(folder, "listed", header=f"{HEADER}# dependencies: listed\n")
        assert discovery.discover(folder)["listed"].listed
        write(folder, "listed", header=f"{HEADER}# dependencies: some\n")
        with pytest.raises(discovery.PeerError, match=r"listed\.txt.*listed, or left out"):
            discovery.discover(folder)

    def test_included_files_are_inserted(self, folder: Path) -> None:
        """Comments are dropped, so that they do not change the environment."""
        (folder / "base").mkdir()
        (folder / "base" / "deep.txt").write_text("# words\nthree==3\n")
        (folder / "base" / "more.txt").write_text("-r deep.txt\ntwo==2\n")
        (folder / "one.txt").write_text(f"{HEADER}# words\n-r base/more.txt\none==1\n")
        assert discovery.packages(folder / "one.txt").split() == ["three==3", "two==2", "one==1"]

    def test_adapter_is_found_by_name(self, folder: Path) -> None:
        """A hyphen in a peer's name is an underscore in its adapter's."""
        adapter = write(folder, "two-words", "OPS = {}\n")
        assert adapter.name == "two_words.py"
        assert discovery.discover(folder)["two-words"].subject == adapter

    def test_peers_are_sorted_by_name(self, folder: Path) -> None:
        """The order does not depend on the file system."""
        for name in ("zebra", "ant", "mole"):
            write(folder, name)
        assert list(discovery.discover(folder)) == ["ant", "mole", "zebra"]

    @pytest.mark.parametrize(
        ("header", "keys"),
        [
            ("", "none of them"),
            ("# The peer.\n" + HEADER, "none of them"),
            ("# distribution: two-words\n# import: two\n", "distribution, import"),
            ("# distribution: two-words\n# import:\n# purpose: tests\n", "distribution"),
            (HEADER + "# import: again\n", "distribution, import, purpose, import"),
            (HEADER.replace("import", "module"), "distribution, module, purpose"),
            (HEADER + "# colour: red\n", "distribution, import, purpose, colour"),
        ],
        ids=["none", "late", "missing", "empty", "twice", "misspelt", "unknown"],
    )
    def test_malformed_header_names_the_file(self, folder: Path, header: str, keys: str) -> None:
        """The error says how the file must start and what was found."""
        write(folder, "words", header=header)
        with pytest.raises(discovery.PeerError) as caught:
            discovery.discover(folder)
        expected = "must begin with a line `# KEY: VALUE` for each of distribution, import, purpose"
        assert str(caught.value) == f"{folder / 'words.txt'}: {expected}; found {keys}"

    def test_requirements_must_be_utf8(self, folder: Path) -> None:
        """Bytes that are not UTF-8 are reported with the file's name."""
        (folder / "words.txt").write_bytes(b"# distribution: \xff\n")
        with pytest.raises(discovery.PeerError, match=r"words\.txt: 'utf-8' codec"):
            discovery.discover(folder)


class TestVariants:
    """Variants are read without importing the adapter."""

    @pytest.mark.parametrize("annotation", ["", ": dict[str, Any]"])
    def test_literal_is_read_without_importing(self, folder: Path, annotation: str) -> None:
        """The adapter's imports need not be installed."""
        text = f"import nowhere_installed\nOTHER = 1\nVARIANTS{annotation} = {{'fast': (('token_kl',), {{'level': None}})}}\n"
        write(folder, "words", text)
        assert discovery.discover(folder)["words"].variants == {"fast": (("token_kl",), {"level": None})}

    @pytest.mark.parametrize(
        "value",
        ["dict()", "{'a': OPS}", "[]", "{'a': ('op', {})}", "{'a': (('op',),)}", "{'a': (('op',), {1: 2})}", "{[]: 1}"],
    )
    def test_another_value_names_the_line(self, folder: Path, value: str) -> None:
        adapter = write(folder, "words", f"OPS = {{}}\nVARIANTS = {value}\n")
        with pytest.raises(discovery.PeerError) as caught:
            discovery.discover(folder)
        assert str(caught.value) == f"{adapter}:2: VARIANTS must be {discovery.EXPECTED_VARIANTS}"

    def test_syntax_error_names_the_file(self, folder: Path) -> None:
        adapter = write(folder, "words", "OPS = {\n")
        with pytest.raises(discovery.PeerError, match=f"{adapter.name}: is not Python: "):
            discovery.discover(folder)


class TestSubjects:
    """Subjects of peers."""

    def test_peer_without_adapter_is_listed_and_not_judged(self, folder: Path) -> None:
        """Its environment can be made, but `--subject` refuses it."""
        write(folder, "words")
        assert [row.name for row in environments.listing()] == ["words"]
        assert "words" not in subjects().subjects

    def test_peer_with_adapter_is_judged_with_its_variants(self, folder: Path) -> None:
        """A variant has the peer's file and interpreter, with its own ops and settings."""
        adapter = write(folder, "two-words", "VARIANTS = {'fast': (('token_kl',), {'level': 3})}\n")
        registered = subjects().subjects
        base, variant = registered["two-words"], registered["two-words@fast"]
        assert base.entry == variant.entry == adapter
        assert base.module == variant.module == "gates.subjects.peers.two_words"
        assert base.python == variant.python == str(environments.environment("two-words").python)
        assert (base.default, base.ops, base.settings) == (False, None, {})
        assert (variant.default, variant.ops, variant.settings) == (False, ("token_kl",), {"level": 3})
        assert base.why_absent == "no environment yet; `gates peers sync two-words` makes it"

    def test_malformed_header_is_a_configuration_error(self, folder: Path) -> None:
        """A command that judges exits with 2 and the message, without a traceback."""
        write(folder, "words", header="")
        with pytest.raises(ConfigurationError, match=r"words\.txt: must begin with"):
            subjects()


class TestShipped:
    """The peers that come with Gates."""

    def test_every_adapter_has_requirements(self) -> None:
        """An adapter without a requirements file would never be found."""
        folder = Path(environments.HERE)
        adapters = {file for file in folder.glob("*.py") if file.name not in NOT_ADAPTERS}
        assert adapters == {peer.subject for peer in environments.peers().values() if peer.subject}

    def test_variants_of_mlxrl_are_subjects(self) -> None:
        """Its losses whose choices no preset has, and the documented parameter sets of its Dr. GRPO."""
        variants = environments.peers()["mlxrl"].variants
        grpo = {"algorithm": "dr_grpo", "bound": "none"}
        assert variants["dr-grpo"] == (("policy_loss",), grpo)
        assert variants["dr-grpo-without-max-tokens"][1] == {**grpo, "aggregation": "width", "max_tokens": None}
        assert variants["dr-grpo-normalized"] == (("group_advantages",), {"normalize_rewards": True})
        assert {"grpo", "rloo", "gspo-token-mode", "dr-grpo-token-mean"} < set(variants)
