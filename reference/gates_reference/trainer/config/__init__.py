"""The configuration of a run: TOML sections, overrides, and errors that name the nearest legal key."""
