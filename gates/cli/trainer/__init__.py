"""`gates trainer`: the verbs of the MLX reference trainer. They judge nothing."""

from __future__ import annotations

import typer

from gates.cli.trainer import evaluate, generate, memory, replay, smoke, train
from gates.cli.verb import Verb

VERBS = ("smoke", "train", "generate", "evaluate", "memory")  # those that had a name of their own once
ANY_ARGUMENTS = {
    "ignore_unknown_options": True,
    "allow_extra_args": True,
}  # accept any options after an old name

app = typer.Typer(help="Train, try and measure models with the MLX reference trainer.", no_args_is_help=True)
app.command("smoke", cls=Verb, epilog=smoke.EXAMPLES)(smoke.smoke)
app.command("train", cls=Verb, epilog=train.EXAMPLES)(train.train)
app.command("generate", cls=Verb, epilog=generate.EXAMPLES)(generate.generate)
app.command("evaluate", cls=Verb, epilog=evaluate.EXAMPLES)(evaluate.evaluate)
app.command("replay", cls=Verb, epilog=replay.EXAMPLES)(replay.replay)
app.command("memory", cls=Verb, epilog=memory.EXAMPLES)(memory.memory)


def moved(context: typer.Context) -> None:
    """Refuse the old name of a verb and give the new one.

    Raises:
        ConfigurationError: always.
    """
    from gates.model import ConfigurationError

    verb = context.info_name
    raise ConfigurationError(f"`gates {verb}` is now `gates trainer {verb}`, with the same arguments")
