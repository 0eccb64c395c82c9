"""`gates xray`: run a training script, and say what its updates pushed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gates.config.format_names import FailOn

if TYPE_CHECKING:
    from gates.xray.picture import Xray

EXAMPLES = """Examples:

gates xray -- python train.py · gates xray --updates 3 --out xray.html -- python train.py --model tiny · gates xray --stop -- accelerate launch train.py · gates xray --out new.json --baseline old.json -- python train.py · gates xray --keep recording -- python train.py · gates xray --recording recording --out xray.html

docs/xray.md says what is measured, what a script may say with gates_note, and what cannot be seen."""
SUFFIXES = (".json", ".html", ".htm")


def xray(
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="-- COMMAND...", help="The script as you run it; unchanged, PyTorch or MLX."),
    ] = None,
    updates: Annotated[
        int, typer.Option(min=1, max=100, metavar="N", help="Optimizer steps that are looked at, from the first.")
    ] = 2,
    stop: Annotated[bool, typer.Option("--stop", help="End the script after them.")] = False,
    out: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="Write there, atomically: .html (a page) or .json; may be repeated."),
    ] = None,
    baseline: Annotated[
        Path | None,
        typer.Option(
            metavar="OLD.json", help="Compare with an earlier --out OLD.json: exit 1 if a coefficient changed."
        ),
    ] = None,
    tokens: Annotated[bool, typer.Option("--tokens", help="List each token.")] = False,
    parameters: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATTERN",
            help="Fit these parameters only, such as '*lora*' or 'model.layers.23.*'; may be repeated. The rest is not judged.",
        ),
    ] = None,
    columns: Annotated[int, typer.Option(min=1, max=8000, metavar="N", help="The most tokens of an update.")] = 4000,
    seconds: Annotated[
        float, typer.Option(min=1.0, metavar="S", help="The longest that an update may be expected to take.")
    ] = 300.0,
    keep: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Keep the recording in this new folder.")] = None,
    recording: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Read a kept recording instead of running a script.")
    ] = None,
    fail_on: Annotated[
        FailOn,
        typer.Option(
            "--fail-on",
            help="The mildest grade of a verdict that fails: wrong, differs, raises (default), fragile or imprecise.",
        ),
    ] = "raises",
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON; what the script prints goes to standard error.")
    ] = False,
) -> None:
    """Run a training script unchanged, and say which tokens its first updates pushed, how strongly, and in which direction.

    Take a tiny or small model and few rows: the work is one backward pass a token. A negative coefficient pushes a token up.

    Exit code: 0 read · 1 a verdict on noted rewards fails, a coefficient differs from --baseline, or the script failed · 2 usage · 3 no update could be
    recorded · 130 interrupted.
    """
    import tempfile

    from gates.errors import ConfigurationError, ExitCode
    from gates.xray.picture import read

    _checked(command, out or [], baseline, keep, recording)
    if recording is not None:
        raise typer.Exit(_shown(read(recording), out or [], baseline, fail_on, tokens=tokens, as_json=as_json))
    from gates.xray import launch

    with tempfile.TemporaryDirectory(prefix="gates-xray-") as temporary:
        folder = keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        asked = launch.Asked(str(folder.resolve()), updates, columns, seconds, tuple(parameters or ()), stop)
        status, interrupted = launch.run(command or [], asked, output=launch.standard_error() if as_json else None)
        if status:
            typer.echo(f"gates xray: {launch.reason(status)}", err=True)
        try:
            seen = read(folder)
        except ConfigurationError as error:
            typer.echo(f"gates xray: {_nothing(folder, str(error))}", err=True)
            raise typer.Exit(ExitCode.INTERRUPTED if interrupted else ExitCode.NOTHING) from None
        code = _shown(seen, out or [], baseline, fail_on, tokens=tokens, as_json=as_json)
    if interrupted:
        code = ExitCode.INTERRUPTED
    elif status and code == ExitCode.HELD:
        code = ExitCode.FAILED
    raise typer.Exit(code)


def _checked(
    command: list[str] | None, out: list[Path], baseline: Path | None, keep: Path | None, recording: Path | None
) -> None:
    """Refuse what cannot be done before a script runs for minutes.

    Raises:
        ConfigurationError: it says what to do.
    """
    from gates.errors import ConfigurationError

    if bool(command) == (recording is not None):
        raise ConfigurationError(
            "xray needs a command after --, as in `gates xray -- python train.py`, or --recording FOLDER; one of them"
        )
    for file in out:
        if file.suffix.lower() not in SUFFIXES:
            raise ConfigurationError(f"--out {file}: its name must end in .html (a page) or .json")
        if not file.parent.is_dir():
            raise ConfigurationError(f"--out {file}: there is no folder {file.parent}; make it first")
    if baseline is not None and not baseline.is_file():
        raise ConfigurationError(f"--baseline {baseline}: no such file; `gates xray --out {baseline} -- …` writes one")
    if keep is not None and keep.exists() and (not keep.is_dir() or any(keep.iterdir())):
        raise ConfigurationError(f"--keep {keep}: it exists and is not empty; name a new folder")


def _nothing(folder: Path, error: str) -> str:
    """Return why nothing was recorded."""
    if any(folder.iterdir()):
        return error
    return (
        "no optimizer step was seen. The script must start a Python that takes PYTHONPATH (not python -I, -S or -E), import "
        "torch or MLX, and make an update itself"
    )


def _shown(seen: Xray, out: list[Path], baseline: Path | None, fail_on: FailOn, *, tokens: bool, as_json: bool) -> int:
    """Print and write what was seen, and return the exit code."""
    import json

    from gates.errors import ExitCode
    from gates.report.progress import console
    from gates.report.wrap import columns
    from gates.report.xray import document, page, screen, verdicts
    from gates.results.atomic_write import write_whole
    from gates.xray import baseline as baselines

    record = document.record(seen)
    compared = baselines.compare(_document(baseline), record) if baseline is not None else None
    text = json.dumps(record, indent=1, ensure_ascii=False) + "\n"
    for file in out:
        write_whole(file, text if file.suffix.lower() == ".json" else page.page(seen))
    if as_json:
        typer.echo(text, nl=False)
    shown = console(stderr=as_json)
    if not as_json:
        for line in screen.lines(seen, columns(), tokens=tokens, colour=shown.color_system is not None):
            shown.print(line)
    for line in screen.changes(compared, columns()) if compared is not None else []:
        shown.print(line)
    for file in out:
        shown.print(f"written: {file}", highlight=False, markup=False)
    if not seen.updates:
        return ExitCode.NOTHING
    changed = compared is not None and not compared.none
    return ExitCode.FAILED if changed or verdicts.failed(seen, fail_on) else ExitCode.HELD


def _document(file: Path) -> dict[str, object]:
    """Return an earlier X-ray.

    Raises:
        ConfigurationError: it is not JSON.
    """
    import json

    from gates.errors import ConfigurationError

    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"--baseline {file}: {error}; it must be what `gates xray --out X.json` writes"
        ) from None
    if not isinstance(value, dict):
        raise ConfigurationError(f"--baseline {file}: it must be what `gates xray --out X.json` writes")
    return value
