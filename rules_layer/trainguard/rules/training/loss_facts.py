"""Facts about losses and scores that several rules share, and their words."""

from trainguard.finding import Fact
from trainguard.rules.training.progress import tail
from trainguard.rules.training.series import Series
from trainguard.rules.words import FactSheet

MANY_TIMES = 10.0


def level(name: str, series_name: str, value: float, *, start: float | None = None, end: float | None = None) -> Fact:
    """Return a value of a loss or a score."""
    return Fact(name=name, value=value, series=series_name, start=start, end=end)


def step(name: str, value: int) -> Fact:
    """Return a step's number."""
    return Fact(name=name, value=value, unit="steps")


def first_facts(name: str, series: Series, prefix: str = "loss") -> tuple[Fact, ...]:
    """Return where a series began: the first value, or of a long one the mean of its first values."""
    began = float(series.began) or None
    return (
        level(f"{prefix}_first", name, series.means[0], start=began, end=float(series.times[0]) or None),
        step(f"{prefix}_first_step", series.begins),
        *(
            ()
            if series.size == 1
            else (
                Fact(name=f"{prefix}_first_values", value=series.size),
                step(f"{prefix}_first_until", series.steps[0]),
            )
        ),
    )


def last_facts(name: str, series: Series, prefix: str = "loss") -> tuple[Fact, ...]:
    """Return the mean of the last quarter of a series, and the step at which it ends."""
    return (level(f"{prefix}_last", name, tail(series)), step(f"{prefix}_last_step", series.steps[-1]))


def first_words(sheet: FactSheet, prefix: str = "loss", digits: int = 6) -> str:
    """Say where a series began: a value, or of a long one about what its first values are."""
    start = f"{sheet.number(f'{prefix}_first'):.{digits}g}"
    begins, values = int(sheet.number(f"{prefix}_first_step")), sheet.get(f"{prefix}_first_values")
    if values is None:
        return f"{start} at the start (step {begins})"
    until = int(sheet.number(f"{prefix}_first_until"))
    return f"about {start} over the first {int(values.value):,} values (steps {begins} to {until})"


def last_words(sheet: FactSheet, prefix: str = "loss", digits: int = 6) -> str:
    """Say what a series is in its last quarter."""
    value, until = sheet.number(f"{prefix}_last"), int(sheet.number(f"{prefix}_last_step"))
    return f"{value:.{digits}g} in the last quarter (until step {until})"


def moved(change: float) -> str:
    """Say a signed share: ``fell by 14 %``, ``did not change``, ``rose by 50 times its first size``."""
    if abs(change) >= MANY_TIMES:
        return f"{'fell' if change < 0.0 else 'rose'} by {abs(change):.3g} times its first size"
    percent = f"{100.0 * abs(change):.3g} %"
    if change == 0.0:
        return "did not change"
    return f"fell by {percent}" if change < 0.0 else f"rose by {percent}"
