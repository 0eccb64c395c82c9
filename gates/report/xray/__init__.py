"""X-rays as JSON, as one screen and as a page."""
