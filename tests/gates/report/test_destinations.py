"""Where `gates report` writes: the format by the name of the file, what is refused, and the browser."""

import json
import webbrowser
from pathlib import Path

import jsonschema
import pytest
from runs_on_file import verdict, write
from typer.testing import CliRunner

from gates.cli import setup
from gates.cli.verbs import app
from gates.config.settings import Settings
from gates.model import ConfigurationError

ROOT = Path(__file__).resolve().parents[3]
CONFORMANCE = ROOT / "results" / "conformance" / "rlox.jsonl"
SPEED = next((ROOT / "results" / "bench").glob("kernels-*.jsonl"))
CURVES = ROOT / "results" / "learning" / "curves.jsonl"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Write a check with one failure."""
    return write(tmp_path / "run.jsonl", [verdict(), verdict("wrong", gate="loss")]).path


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the addresses that the browser is asked to open."""
    addresses: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda address: addresses.append(address) or True)
    return addresses


def report(*arguments: object) -> str:
    done = CliRunner().invoke(app, ["report", *map(str, arguments)])
    if done.exception:
        raise done.exception
    return done.output


class TestSuffix:
    """The name of the file selects the format."""

    @pytest.mark.parametrize(
        ("name", "form"),
        [
            ("a.md", "md"),
            ("a.html", "html"),
            ("a.htm", "html"),
            ("a.json", "json"),
            ("a.jsonl", "jsonl"),
            ("a.xml", "junit"),
            ("a.sarif", "sarif"),
            ("a.txt", "text"),
        ],
    )
    def test_of_verdicts(self, run: Path, tmp_path: Path, name: str, form: str) -> None:
        report(run, "--out", tmp_path / name)
        assert (tmp_path / name).read_text() == report(run, "--format", form)

    @pytest.mark.parametrize(
        ("name", "start"),
        [
            ("a.md", "# Conformance"),
            ("a.html", "<!doctype html>"),
            ("a.txt", "rlox 1"),
            ("a.json", '{"libraries"'),
            ("a.jsonl", '{"record":"conformance-header"'),
        ],
    )
    def test_of_conformance(self, tmp_path: Path, name: str, start: str) -> None:
        report(CONFORMANCE, "--out", tmp_path / name)
        assert (tmp_path / name).read_text().startswith(start)

    def test_json_of_conformance_has_every_record(self) -> None:
        (library,) = json.loads(report(CONFORMANCE, "--format", "json"))["libraries"]
        lines = [json.loads(line) for line in CONFORMANCE.read_text().splitlines()]
        records = [
            library["header"],
            *library["grades"],
            *library["blanks"],
            *library["findings"],
            *library["coverage"],
        ]
        assert records == lines

    @pytest.mark.parametrize("file", [CONFORMANCE, SPEED], ids=["conformance", "speed"])
    def test_a_format_without_a_name_is_enough(self, tmp_path: Path, file: Path) -> None:
        report(file, "--format", "md", "--out", tmp_path / "page")
        assert (tmp_path / "page").read_text().startswith("# ")


class TestRefusals:
    """Usage errors that list what is possible."""

    def test_a_hyphen(self, run: Path) -> None:
        """Nothing is read from or written to a standard stream by name."""
        with pytest.raises(ConfigurationError, match=r"--out - is no file; leave it out, and the report is printed"):
            report(run, "--out", "-")
        with pytest.raises(ConfigurationError, match=r"cannot read -: .*; standard input is not read: name a file"):
            report("-")
        with pytest.raises(ConfigurationError, match="--out - is no folder for results"):
            setup.writer("check", Path("-"), record=False)

    @pytest.mark.parametrize("name", ["a.pdf", "a", "a.svg"])
    def test_an_unknown_suffix(self, run: Path, tmp_path: Path, name: str) -> None:
        with pytest.raises(
            ConfigurationError, match=r"must end in \.md, \.html, \.json, \.jsonl, \.xml, \.sarif or \.txt"
        ):
            report(run, "--out", tmp_path / name)
        assert not (tmp_path / name).exists()

    @pytest.mark.parametrize(
        ("file", "name", "possible"),
        [
            (CONFORMANCE, "a.xml", r"\.md, \.html, \.json, \.jsonl or \.txt"),
            (SPEED, "a.json", r"\.md, \.html or \.txt"),
            (CURVES, "a.md", r"must end in \.svg"),
        ],
        ids=["conformance", "speed", "curves"],
    )
    def test_a_suffix_that_the_file_has_no_form_for(self, tmp_path: Path, file: Path, name: str, possible: str) -> None:
        with pytest.raises(ConfigurationError, match=possible):
            report(file, "--out", tmp_path / name)

    def test_a_format_that_contradicts_the_suffix(self, run: Path, tmp_path: Path) -> None:
        with pytest.raises(ConfigurationError, match=r"--format md .*a\.html, .* html: leave out --format"):
            report(run, "--format", "md", "--out", tmp_path / "a.html")

    @pytest.mark.parametrize(
        ("file", "form"),
        [(CONFORMANCE, "junit"), (SPEED, "json"), (CURVES, "md")],
        ids=["conformance", "speed", "curves"],
    )
    def test_a_format_that_the_file_has_not(self, file: Path, form: str) -> None:
        with pytest.raises(ConfigurationError, match=f"--format {form} does not apply"):
            report(file, "--format", form)


class TestOpen:
    """`--open`."""

    def test_the_page_is_written_and_opened(self, run: Path, tmp_path: Path, opened: list[str]) -> None:
        said = report(run, "--open", "--out", tmp_path / "page.html")
        assert opened == [(tmp_path / "page.html").as_uri()]
        assert f"opened {tmp_path / 'page.html'}" in said

    def test_without_out_a_temporary_file_is_named(self, opened: list[str]) -> None:
        said = report(CONFORMANCE, "--open")
        file = Path(said.split()[-1])
        assert opened == [file.as_uri()]
        assert file.read_text().startswith("<!doctype html>")
        file.unlink()

    def test_no_browser(self, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The page is kept, and a line says how to see it."""
        monkeypatch.setattr(webbrowser, "open", lambda _: False)
        assert f"no browser here: open {tmp_path / 'page.html'}" in report(
            run, "--open", "--out", tmp_path / "page.html"
        )

    @pytest.mark.parametrize(
        "arguments", [("--out", "page.md"), ("--format", "md")], ids=["another suffix", "another format"]
    )
    def test_only_pages_open(self, run: Path, tmp_path: Path, opened: list[str], arguments: tuple[str, str]) -> None:
        with pytest.raises(ConfigurationError, match="--open writes a page"):
            report(run, "--open", arguments[0], tmp_path / arguments[1] if "." in arguments[1] else arguments[1])
        assert opened == []

    def test_curves_have_no_page(self, opened: list[str]) -> None:
        with pytest.raises(ConfigurationError, match="--format html does not apply"):
            report(CURVES, "--open")


class TestSettings:
    """The schema of `[tool.gates]`."""

    def test_it_accepts_what_the_reader_accepts(self) -> None:
        schema = json.loads(report("--settings-schema"))
        validator = jsonschema.Draft202012Validator(schema)
        full = {
            "subjects": ["a.py"],
            "seed": "random",
            "format": "md",
            "fail_on": "wrong",
            "time_limit": 2.5,
            "jobs": 2,
        }
        validator.validate(full)
        Settings(**full)
        for bad in ({"subject": ["a.py"]}, {"seed": -1}, {"jobs": 65}, {"format": "html"}, {"time_limit": 0}):
            assert list(validator.iter_errors(bad)), bad

    def test_every_setting_is_described(self) -> None:
        schema = json.loads(report("--settings-schema"))
        assert schema["properties"].keys() == Settings.model_fields.keys()
        assert all(item["description"] for item in schema["properties"].values())

    def test_one_schema_at_a_time(self) -> None:
        with pytest.raises(ConfigurationError, match="one of them"):
            report("--settings-schema", "--schema")
