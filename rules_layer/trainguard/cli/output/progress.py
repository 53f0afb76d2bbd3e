"""How far an analysis has come: a bar where stderr is a terminal, a line every 30 s elsewhere."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

from rich.console import Console
from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as Bar

from trainguard.cli.output.rendering import stderr_console

_REDRAW_S = 0.1
_LINE_EVERY_S = 30.0
_MB = 1e6


class ProgressBar:
    """Draws a bar, or prints a line every 30 s, from the calls alone: a thread would hinder forked workers."""

    def __init__(self, console: Console, *, shown: bool, clock: Callable[[], float] = time.monotonic) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[text]}"))
        self._bar = Bar(*columns, console=console, auto_refresh=False, transient=True, disable=not shown)
        self._task = self._bar.add_task("reading", total=None, text="")
        self._objects = self._all_objects = self._size = self._all_size = 0
        self._window_s = 0.0
        self._first: float | None = None
        self._through = 0.0
        self._drawn = 0.0
        self._console = console
        self._shown = shown
        self._clock = clock
        self._printed = clock()

    @contextmanager
    def of_objects(self, objects: int, size: int) -> Iterator[None]:
        """Begin with so many objects of ``size`` bytes in all."""
        self._all_objects, self._all_size = objects, size
        with self._bar:
            yield

    def applied(self, size: int, watermark_s: float | None, /) -> None:
        """Show objects, bytes and the time that they cover."""
        self._objects += 1
        self._size += size
        if watermark_s is not None:
            self._first = watermark_s if self._first is None else self._first
            self._through = max(self._through, watermark_s)
        covered = _span(max(self._through - (self._first or self._through), 0.0))
        text = (
            f"{self._objects:,} of {self._all_objects:,} objects, "
            f"{self._size / _MB:,.0f} of {self._all_size / _MB:,.0f} MB, {covered} covered"
        )
        self._draw(self._size, self._all_size, text)

    @contextmanager
    def of_windows(self, interval_s: float) -> Iterator[None]:
        """Begin with windows of ``interval_s`` seconds, whose number is not known yet."""
        self._window_s = interval_s
        with self._bar:
            yield

    def replayed(self, done: int, windows: int, /) -> None:
        """Show windows and the time that they cover."""
        self._draw(done, windows, f"{done:,} of {windows:,} windows, {_span(done * self._window_s)} covered")

    def _draw(self, done: int, total: int, text: str) -> None:
        now = self._clock()
        if not self._shown and now - self._printed >= _LINE_EVERY_S:
            self._printed = now
            self._console.print(f"trainguard: {text}", soft_wrap=True)
        elif self._shown and (now - self._drawn >= _REDRAW_S or done == total):
            self._drawn = now
            self._bar.update(self._task, completed=done, total=total, text=text, refresh=True)


def stderr_progress(*, shown: bool) -> ProgressBar:
    """Return a bar on stderr, if ``shown`` and stderr is a terminal; else lines, wherever stdout goes."""
    stderr = stderr_console()
    return ProgressBar(stderr, shown=shown and stderr.is_terminal)


def _span(seconds: float) -> timedelta:
    """Return whole seconds; a window may be longer than any time span."""
    return timedelta(seconds=round(min(seconds, timedelta.max.total_seconds() - 1.0)))
