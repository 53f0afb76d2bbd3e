"""The streams that a person or a program reads."""

import os

from rich.console import Console
from rich.text import Text

from trainguard.plain_text import one_line


class _Piped(Console):
    """A console whose reader may go away: what is left to say is then not said."""

    def on_broken_pipe(self) -> None:
        """Go on without output."""
        self.quiet = True
        leave_pipe(self.file.fileno())


def leave_pipe(descriptor: int) -> None:
    """Send a stream whose reader has gone nowhere; without this, Python would complain once more when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)


def stdout_console() -> Console:
    """Return the console of the results; colours obey NO_COLOR and are for terminals only."""
    return _Piped(highlight=False)


def stderr_console() -> Console:
    """Return the console of what is no result."""
    return Console(stderr=True, highlight=False)


def print_note(text: str) -> None:
    """Print a line for people to stderr."""
    stderr_console().print(Text(one_line(text)), soft_wrap=True)
