"""The report of recorded speeds: one document, rendered as markdown, as an HTML page and as one screen of text."""
