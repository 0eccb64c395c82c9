"""`python -m gates` is `gates`."""

from gates.cli import main

main()
