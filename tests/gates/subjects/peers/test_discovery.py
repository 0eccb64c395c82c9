"""A peer is a requirements file and, if it is judged, an adapter beside it: nothing else names it."""

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
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of peers in place of the shipped one, and a cache in which nothing is ready."""
    monkeypatch.setattr(environments, "HERE", tmp_path)
    monkeypatch.setattr(environments, "peers", environments.peers.__wrapped__)
    monkeypatch.setenv(environments.CACHE_VARIABLE, str(tmp_path / "cache"))
    return tmp_path


def write(folder: Path, name: str, adapter: str | None = None, header: str = HEADER) -> Path:
    """Add a peer; return its adapter's path, which exists if it was given a text."""
    (folder / f"{name}.txt").write_text(f"{header}two-words==1.0\n")
    file = folder / f"{name.replace('-', '_')}.py"
    if adapter is not None:
        file.write_text(adapter)
    return file


def subjects() -> Registry:
    """The shipped subjects and the peers of the folder."""
    registry = Registry()
    catalogue.register(registry)
    return registry


class TestDiscover:
    """What is read of a folder."""

    def test_header_says_what_the_peer_is(self, folder: Path) -> None:
        """The three lines and the file's name are all that is known of a peer; it has no subject of itself."""
        write(folder, "words")
        (peer,) = discovery.discover(folder).values()
        assert peer == discovery.Peer(
            "words", "two-words", "two.words", folder / "words.txt", None, "timed: its rollouts", {}
        )

    def test_listed_dependencies_are_all_that_is_installed(self, folder: Path) -> None:
        """A fourth line of the header says that nothing else is installed; another word in it is refused."""
        write(folder, "listed", header=f"{HEADER}# dependencies: listed\n")
        assert discovery.discover(folder)["listed"].listed
        write(folder, "listed", header=f"{HEADER}# dependencies: some\n")
        with pytest.raises(discovery.PeerError, match=r"listed\.txt.*listed, or left out"):
            discovery.discover(folder)

    def test_included_files_stand_in_place_of_their_line(self, folder: Path) -> None:
        """Comments are left out, so that another comment is no other environment."""
        (folder / "base").mkdir()
        (folder / "base" / "deep.txt").write_text("# words\nthree==3\n")
        (folder / "base" / "more.txt").write_text("-r deep.txt\ntwo==2\n")
        (folder / "one.txt").write_text(f"{HEADER}# words\n-r base/more.txt\none==1\n")
        assert discovery.packages(folder / "one.txt").split() == ["three==3", "two==2", "one==1"]

    def test_adapter_lies_beside_it(self, folder: Path) -> None:
        """A hyphen in a peer's name is an underscore in its adapter's."""
        adapter = write(folder, "two-words", "OPS = {}\n")
        assert adapter.name == "two_words.py"
        assert discovery.discover(folder)["two-words"].subject == adapter

    def test_order_is_that_of_the_names(self, folder: Path) -> None:
        """The order in which files were made, or in which a disk lists them, is not seen."""
        for name in ("zebra", "ant", "mole"):
            write(folder, name)
        assert list(discovery.discover(folder)) == ["ant", "mole", "zebra"]

    @pytest.mark.parametrize(
        ("header", "found"),
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
    def test_malformed_header_names_the_file(self, folder: Path, header: str, found: str) -> None:
        """The error says what the file must begin with and what was found."""
        write(folder, "words", header=header)
        with pytest.raises(discovery.PeerError) as caught:
            discovery.discover(folder)
        expected = "must begin with a line `# KEY: VALUE` for each of distribution, import, purpose"
        assert str(caught.value) == f"{folder / 'words.txt'}: {expected}; found {found}"

    def test_requirements_that_are_no_text(self, folder: Path) -> None:
        """Bytes that are not UTF-8 are reported with the file's name."""
        (folder / "words.txt").write_bytes(b"# distribution: \xff\n")
        with pytest.raises(discovery.PeerError, match=r"words\.txt: 'utf-8' codec"):
            discovery.discover(folder)


class TestVariants:
    """What the judge reads of an adapter, which it never imports."""

    @pytest.mark.parametrize("annotation", ["", ": dict[str, Any]"])
    def test_literal_is_read_without_importing(self, folder: Path, annotation: str) -> None:
        """An adapter that only its own environment can import still says which variants it has."""
        text = f"import nowhere_installed\nOTHER = 1\nVARIANTS{annotation} = {{'fast': (('token_kl',), {{'level': None}})}}\n"
        write(folder, "words", text)
        assert discovery.discover(folder)["words"].variants == {"fast": (("token_kl",), {"level": None})}

    @pytest.mark.parametrize(
        "value",
        ["dict()", "{'a': OPS}", "[]", "{'a': ('op', {})}", "{'a': (('op',),)}", "{'a': (('op',), {1: 2})}", "{[]: 1}"],
    )
    def test_anything_else_names_the_line(self, folder: Path, value: str) -> None:
        """A value that is computed, or of another shape, is refused."""
        adapter = write(folder, "words", f"OPS = {{}}\nVARIANTS = {value}\n")
        with pytest.raises(discovery.PeerError) as caught:
            discovery.discover(folder)
        assert str(caught.value) == f"{adapter}:2: VARIANTS must be {discovery.EXPECTED_VARIANTS}"

    def test_adapter_that_is_no_python(self, folder: Path) -> None:
        """A syntax error is reported with the file's name."""
        adapter = write(folder, "words", "OPS = {\n")
        with pytest.raises(discovery.PeerError, match=f"{adapter.name}: is not Python: "):
            discovery.discover(folder)


class TestSubjects:
    """Which peers are judged."""

    def test_peer_without_adapter_is_listed_and_not_judged(self, folder: Path) -> None:
        """Its environment can be made; `--subject` does not know it."""
        write(folder, "words")
        assert [row.name for row in environments.listing()] == ["words"]
        assert "words" not in subjects().subjects

    def test_peer_with_adapter_is_judged_with_its_variants(self, folder: Path) -> None:
        """A variant has the peer's file and interpreter, and ops and settings of its own."""
        adapter = write(folder, "two-words", "VARIANTS = {'fast': (('token_kl',), {'level': 3})}\n")
        found = subjects().subjects
        whole, variant = found["two-words"], found["two-words@fast"]
        assert whole.entry == variant.entry == adapter
        assert whole.module == variant.module == "gates.subjects.peers.two_words"
        assert whole.python == variant.python == str(environments.environment("two-words").python)
        assert (whole.default, whole.ops, whole.settings) == (False, None, {})
        assert (variant.default, variant.ops, variant.settings) == (False, ("token_kl",), {"level": 3})
        assert whole.why_absent == "no environment yet; `gates peers sync two-words` makes it"

    def test_malformed_header_is_one_error_of_the_configuration(self, folder: Path) -> None:
        """A command that judges stops with exit code 2 and the sentence, not with a traceback."""
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
        """The three documented parameter sets of its Dr. GRPO."""
        variants = environments.peers()["mlxrl"].variants
        assert variants == {
            "dr-grpo-without-max-tokens": (("policy_loss",), {"max_tokens": None}),
            "dr-grpo-token-mean": (("policy_loss",), {"loss_reduction": "token_mean"}),
            "dr-grpo-normalized": (("group_advantages",), {"normalize_rewards": True}),
        }
