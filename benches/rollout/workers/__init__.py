"""What runs in the peers' own environments: `process.py` speaks with us, each other file rolls out with one peer."""
