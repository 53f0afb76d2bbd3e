"""Precedence is total: whatever sources give whatever settings, each is that of the highest source that has it."""

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from trainguard.engine.settings.job_settings import SETTING_READERS, Source, resolve
from trainguard.rules.parameters import resolve_parameters

PARAMETERS = (
    "LowGPUUtilization_threshold_p95",
    "LowGPUUtilization_patience",
    "BatchSize_patience",
    "StepOutlier_stddev",
    "rule_to_invoke",
)
spellings: st.SearchStrategy[Callable[[str], str]] = st.sampled_from((str, str.lower, str.upper))
values = st.sampled_from(("1", "60", "99", "-1", "x", "", "StepOutlier")) | st.text(max_size=5)
words = st.sampled_from(
    ("all", "none", "off", "tagged", "StepOutlier", "10m", "true", "false", "22:00-23:00", "prod-*")
)


@st.composite
def ranked_sources(draw: st.DrawFn) -> list[Source]:
    """Return sources, the highest first; each spells a parameter in one way."""
    sources = []
    for rank in range(draw(st.integers(1, 5))):
        chosen = draw(st.lists(st.sampled_from(PARAMETERS), unique=True))
        parameters = {draw(spellings)(name): draw(values) for name in chosen}
        choices = draw(st.dictionaries(st.sampled_from(tuple(SETTING_READERS)), words | st.text(max_size=5)))
        sources.append(Source(f"source {rank}", parameters, choices))
    return sources


@given(sources=ranked_sources(), asked=st.booleans())
def test_each_setting_comes_from_the_highest_source_giving_it(sources: list[Source], asked: bool) -> None:
    found = resolve("prod-1", sources, asked=asked)
    in_force = {name.lower(): (value, found.sources[name]) for name, value in found.parameters.items()}
    expected: dict[str, tuple[str, str]] = {}
    for source in reversed(sources):
        expected |= {name.lower(): (value, source.name) for name, value in source.parameters.items()}
    assert in_force == expected
    for name in SETTING_READERS:
        givers = [source.name for source in sources if name in source.choices]
        assert found.sources.get(name) == (givers[0] if givers else None)


@given(sources=ranked_sources(), asked=st.booleans())
def test_every_rule_runs_on_its_settings_or_names_its_fault(sources: list[Source], asked: bool) -> None:
    found = resolve("prod-1", sources, asked=asked)
    parameters, faults = resolve_parameters(found.parameters)
    told = {fault.setting for fault in found.faults}
    assert {fault.field for fault in faults.values()} <= told
    assert not set(parameters) & set(faults)
    assert all(fault.source.startswith("source ") for fault in found.faults)


@given(sources=ranked_sources(), lower=ranked_sources(), asked=st.booleans())
def test_complete_sources_are_unchanged_by_lower_ones(sources: list[Source], lower: list[Source], asked: bool) -> None:
    full = Source("full", dict.fromkeys(PARAMETERS, "1"), dict.fromkeys(SETTING_READERS, "all"))
    assert resolve("job", [*sources, full, *lower], asked=asked) == resolve("job", [*sources, full], asked=asked)


@given(sources=ranked_sources())
def test_unreadable_stop_setting_forbids_stops(
    sources: list[Source],
) -> None:
    found = resolve("job", sources, asked=True)
    unread = {fault.setting for fault in found.faults if fault.setting.startswith("stop-")}
    if unread:
        assert found.policy.stops.rules == ()
