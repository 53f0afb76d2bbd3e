"""Inputs that the tools make now; collected only where `make test-tools` has installed them."""

from pathlib import Path

PYTHON = Path(__file__).parents[2] / "build" / "tools" / "bin" / "python"
collect_ignore_glob = [] if PYTHON.exists() else ["test_*.py"]
