"""The search for input that breaks something: short in every run of the tests, long in `make thorough`."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

_SUPPRESSED = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]

# Gives a test its ``examples``: how many inputs are tried.
short_and_long = pytest.mark.parametrize("examples", [40, pytest.param(10_000, marks=pytest.mark.thorough)])


def search(
    check: Callable[..., None], examples: int, *, known: Sequence[Any] = (), **inputs: st.SearchStrategy[Any]
) -> None:
    """Call ``check`` with inputs until one breaks it; ``known`` are values of the only input that come first."""
    searched = given(**inputs)(check)
    for each in known:
        (name,) = inputs
        searched = example(**{name: each})(searched)
    settings(max_examples=examples, deadline=None, suppress_health_check=_SUPPRESSED)(searched)()


@st.composite
def damaged(draw: st.DrawFn, whole: str | bytes) -> Any:
    """Return text or bytes of which a part was cut out, repeated or replaced."""
    start = draw(st.integers(0, len(whole)))
    end = draw(st.integers(start, min(len(whole), start + 40)))
    if isinstance(whole, bytes):
        return whole[:start] + draw(st.binary(max_size=12)) + whole[end:]
    return whole[:start] + draw(st.text(max_size=12)) + whole[end:]
