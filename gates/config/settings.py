"""Read `[tool.gates]` of a project's pyproject.toml; its paths are relative to that file's folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from gates.config.format_names import CheckFormat, FailOn
from gates.config.validation import read_toml, validated
from gates.model import ConfigurationError

MARKS = ("pyproject.toml", "gates.toml", ".git")  # the root of a project has at least one of them


class Settings(BaseModel):
    """Defaults of `gates check`; the command line takes precedence."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    subjects: list[str] = Field(default=[], description="who is judged: names of `gates list`, or files")
    select: list[str] = Field(default=[], description="which gates: ids, prefixes or globs; empty: all")
    require: list[str] = Field(default=[], description="those whose subject is in the run")
    model: str | None = Field(default=None, description="a model folder or Hugging Face id in place of the tiny model")
    python: str | None = Field(default=None, description="the interpreter of subject files")
    jobs: int = Field(default=0, ge=0, le=64, description="workers side by side; 0: one for each core")
    seed: Annotated[int, Field(ge=0)] | Literal["random"] = Field(default=0, description="of all cases")
    out: str | None = Field(default=None, description="the folder of results files")
    format: CheckFormat | None = Field(default=None, description="what is printed")
    fail_on: FailOn | None = Field(default=None, description="the mildest grade that fails a run")
    waivers: str | None = Field(default=None, description="the file of known failures; else gates.toml")
    time_limit: float | None = Field(default=None, gt=0, allow_inf_nan=False, description="seconds of each call")

    def at(self, root: Path) -> Settings:
        """Return the settings with absolute paths; names of subjects, models and programs are unchanged."""

        def placed(name: str | None) -> str | None:
            return name if name is None or not name.startswith(".") else str(root / name)

        def inside(name: str | None) -> str | None:
            return None if name is None else str(root / name)

        files = [str(root / name) if name.endswith(".py") or "/" in name else name for name in self.subjects]
        return self.model_copy(
            update={
                "subjects": files,
                "model": placed(self.model),
                "python": str(root / self.python) if self.python and "/" in self.python else self.python,
                "out": inside(self.out),
                "waivers": inside(self.waivers),
            }
        )


def settings_schema() -> dict[str, Any]:
    """Return the JSON Schema of `[tool.gates]`."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **Settings.model_json_schema(),
        "title": "[tool.gates] of pyproject.toml",
    }


def root(start: Path) -> Path:
    """Return the nearest folder, from `start` upwards, that has one of `MARKS`; else `start`."""
    folders = (start, *start.parents)
    return next((folder for folder in folders if any((folder / mark).exists() for mark in MARKS)), start)


def read(folder: Path) -> Settings:
    """Return `[tool.gates]` of the folder's pyproject.toml, or the defaults where there is none."""
    file = folder / "pyproject.toml"
    if not file.is_file():
        return Settings()
    tool = read_toml(file).get("tool", {})
    values = tool.get("gates", {}) if isinstance(tool, dict) else {}
    if not isinstance(values, dict):
        raise ConfigurationError(f"{file}: tool.gates must be a table, headed [tool.gates]")
    return validated(Settings, values, f"{file}: [tool.gates]").at(folder)
