"""`python -m vertebra.cli`."""

from vertebra.cli.app import main

main()
