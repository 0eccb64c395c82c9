"""Run the command line: `python -m gates`."""

from gates.cli import main

main()
