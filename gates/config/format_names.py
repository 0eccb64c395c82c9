"""The names of the forms in which results are shown, apart from what renders them: the command line needs them early."""

from __future__ import annotations

from typing import Literal

CheckFormat = Literal["text", "md", "json", "jsonl", "junit", "github"]
ReportFormat = Literal["text", "md", "json", "jsonl", "junit", "github", "html"]
