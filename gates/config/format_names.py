"""The names of the report formats and grades, separate from the renderers so that the command line starts quickly."""

from __future__ import annotations

from typing import Literal

CheckFormat = Literal["text", "md", "json", "jsonl", "junit", "sarif", "github"]
FailOn = Literal["wrong", "differs", "raises", "fragile", "imprecise"]
ReportFormat = Literal["text", "md", "json", "jsonl", "junit", "sarif", "github", "html"]
InitFramework = Literal["torch", "mlx", "jax"]
