"""Progress on stderr: a bar on a terminal, a line every 30 s elsewhere."""

from io import StringIO

from rich.console import Console

from trainguard.cli.output.progress import ProgressBar


def test_long_analysis_without_a_terminal_prints_every_30_s() -> None:
    now = 0.0
    text = StringIO()
    progress = ProgressBar(Console(file=text, width=200), shown=False, clock=lambda: now)
    with progress.of_objects(100, 100_000_000):
        for second in range(1, 101):
            now = float(second)
            progress.applied(1_000_000, 60.0 * second)
    lines = text.getvalue().splitlines()
    assert len(lines) == 3
    assert lines[0] == "trainguard: 30 of 100 objects, 30 of 100 MB, 0:29:00 covered"
