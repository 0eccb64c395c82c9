"""Programs for each target's own interpreter: `process.py` has the protocol, each other file trains with one package."""
