"""The trainer's verbs are under `gates trainer`; old names point there."""

import pytest
from typer.testing import CliRunner

from gates.cli import trainer
from gates.cli.verbs import app
from gates.model import ConfigurationError


@pytest.mark.parametrize("verb", trainer.VERBS)
@pytest.mark.parametrize("arguments", [[], ["run.toml", "--set", "loop.steps=5", "--resume"], ["--help"]])
def test_an_old_name_gives_the_new_one(verb: str, arguments: list[str]) -> None:
    """Any options may follow it."""
    done = CliRunner().invoke(app, [verb, *arguments])
    assert isinstance(done.exception, ConfigurationError)
    assert str(done.exception) == f"`gates {verb}` is now `gates trainer {verb}`, with the same arguments"


def test_help_lists_the_new_names_only() -> None:
    """`gates --help` names the group, and `gates trainer --help` each verb."""
    top = CliRunner().invoke(app, ["--help"]).output
    assert "trainer" in top
    assert not any(f"│ {verb} " in top for verb in trainer.VERBS)
    group = CliRunner().invoke(app, ["trainer", "--help"]).output
    assert all(f"│ {verb} " in group for verb in trainer.VERBS)
