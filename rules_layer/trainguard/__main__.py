"""``python -m trainguard``: the command line."""

from trainguard.cli.main import run

run()
