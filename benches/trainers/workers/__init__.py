"""What runs in each target's own interpreter: `process.py` speaks with us, each other file trains with one package."""
