"""The command line: files, which column is what, answers, commands."""

from vertebra.cli.app import main

__all__ = ["main"]
