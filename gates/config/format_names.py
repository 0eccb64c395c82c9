"""The names of output formats, in a file of their own so that the command line need not import the renderers."""

from __future__ import annotations

from typing import Literal

CheckFormat = Literal["text", "md", "json", "jsonl", "junit", "github"]
ReportFormat = Literal["text", "md", "json", "jsonl", "junit", "github", "html"]
