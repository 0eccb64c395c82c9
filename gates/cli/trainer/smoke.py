"""`gates trainer smoke`: show which parameters of a model would train."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from gates_reference.trainer.smoke import Report

EXAMPLES = """Examples:

gates trainer smoke --tiny family=qwen3_next · gates trainer smoke ./my-model --adapter rank=8 --adapter targets=q_proj,v_proj

gates trainer smoke mlx-community/Qwen3-0.6B-4bit --adapter kind=dora --json"""


def smoke(
    model: Annotated[str | None, typer.Argument(help="A model's folder, or an id in the Hugging Face cache.")] = None,
    tiny: Annotated[
        list[str] | None,
        typer.Option("--tiny", metavar="KEY=VALUE", help="Build a tiny model instead; several times for several keys."),
    ] = None,
    adapter: Annotated[
        list[str] | None,
        typer.Option("--adapter", metavar="KEY=VALUE", help="kind, rank, scale, targets, layers, embeddings, routers."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show a model's layers, its adapters' targets and counts; fail if anything but adapters would train."""
    import dataclasses
    import json

    from gates.model import ConfigurationError

    if (model is None) == (not tiny):
        raise ConfigurationError("name one model: a folder, an id, or a tiny one with --tiny family=qwen3")
    report = _run(
        {"path": _known(model)} if model else _pairs("--tiny", tiny or []), _pairs("--adapter", adapter or [])
    )
    if as_json:
        typer.echo(json.dumps({**dataclasses.asdict(report), "sound": report.sound}, indent=2, ensure_ascii=False))
    else:
        typer.echo(_text(report))
    if not report.sound:
        raise typer.Exit(1)


def _known(model: str) -> str:
    from gates.cli import setup

    return str(setup.model(model, "the model"))


def _pairs(option: str, pairs: list[str]) -> dict[str, Any]:
    """Return KEY=VALUE pairs as a mapping; values are parsed as JSON where possible, `targets` as names separated by commas."""
    import json

    from gates.model import ConfigurationError

    values: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals:
            raise ConfigurationError(f"{option} {pair}: must be KEY=VALUE, such as {option} layers=2")
        if key == "targets":
            values[key] = [name for name in value.split(",") if name]
            continue
        try:
            values[key] = json.loads(value)
        except json.JSONDecodeError:
            values[key] = value
    return values


def _run(spec: dict[str, Any], adapter: dict[str, Any]) -> Report:
    from gates.model import ConfigurationError

    try:
        from gates_reference.trainer import smoke as smoke_test
    except ImportError as error:
        raise ConfigurationError(
            f"the trainer needs MLX and rlkernels ({error}): pip install '.[trainer]' ./rust/rlkernels-python in a checkout of Gates"
        ) from None
    try:
        return smoke_test.run(spec, adapter)
    except (ValueError, TypeError, NotImplementedError, FileNotFoundError) as error:
        raise ConfigurationError(str(error)) from None


def _text(report: Report) -> str:
    counts = report.modules_per_layer
    per_layer = f"{counts[0]} each" if len(set(counts)) == 1 else ", ".join(map(str, counts))
    outside = f", {report.outside} outside" if report.outside else ""
    without = ", ".join(f"{name} ({kind})" for name, kind in report.linear_without_adapter.items())
    rows = {
        "model": report.model,
        "family": report.family,
        "layers": str(report.layers),
        "targets": ", ".join(report.targets),
        "modules": f"{per_layer}{outside}",
        "adapters": ", ".join(f"{number} {kind}" for kind, number in report.adapter_types.items()),
        **({"no adapter": f"{without}: linear, but mlx-lm has no adapter for them"} if without else {}),
        "parameters": f"{report.total:,}",
        "trainable": f"{report.trainable:,} ({report.trainable / report.total:.2%})",
        "logits": f"{tuple(report.logits_shape)}, {'finite' if report.logits_finite else 'NOT FINITE'}",
        "head apart": f"largest |difference| of the logits {report.head_difference:.1e}",
        "rollout": f"path '{report.rollout}'" + (f": {report.why_not_faster}" if report.why_not_faster else ""),
    }
    lines = [f"{name:11} {value}" for name, value in rows.items()]
    return "\n".join([*lines, _verdict(report)])


def _verdict(report: Report) -> str:
    if report.strangers:
        return f"FAILED: {len(report.strangers)} parameters that are no adapter's would train: {', '.join(report.strangers)}"
    if not report.trainable:
        return "FAILED: nothing would train"
    return "Only adapters would train." if report.logits_finite else "FAILED: the logits are not finite"
