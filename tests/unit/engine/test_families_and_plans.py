"""Families of rules together, which objects are theirs, and which rules run on a job with which parameters."""

import re
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from tests.families.pulse.family import PulseFamily
from tests.families.pulse.keys import PulseKey, pulse_key
from tests.support.memory import MemoryWorld
from trainguard.core.errors import RuleConfigError, StateCodecError, StateDamagedError, UnreadableKeyError
from trainguard.core.layout import EndKey, ProfileRoot
from trainguard.core.records import JobRecord, StreamKey, StreamRecord
from trainguard.engine.family import Families, ObjectEvents
from trainguard.engine.installed import FAMILIES
from trainguard.engine.kernels.session import CaptureState
from trainguard.engine.plan import only
from trainguard.engine.profiler.family import PROFILER
from trainguard.engine.profiler.system_stream import SystemState
from trainguard.engine.streams.job_streams import JobState, LazyStreams
from trainguard.rules.batch_size.rule import BatchSize
from trainguard.rules.low_gpu_utilization.rule import LowGPUUtilization
from trainguard.state.codec import CODEC, encode_state

NAME, REPORT = "LowGPUUtilization", "ProfilerReport"
JOB = JobRecord("job", "arn", "profiles", "")
ROOT = ProfileRoot("", "job")
PULSES = PulseFamily()
BOTH = Families(PROFILER, PULSES)
# A rule over nodes and one over the job may have one name.
NAMES = tuple(dict.fromkeys(rule.name for rule in PROFILER.rules))

SYSTEM, PULSE = StreamKey("job", "algo-1", "system"), StreamKey("job", "worker-0", "pulse")


@pytest.mark.parametrize("wildcard", ["a*b", "*a", "b*", "*", "a", "ab*ab", "*ab*b*", "a*b*", "*a*b", "ba*ab*b"])
def test_wildcard_matches_short_keys_as_a_pattern_would(wildcard: str) -> None:
    events = ObjectEvents(wildcards=("no", wildcard))
    pattern = re.compile(".*".join(map(re.escape, wildcard.split("*"))))
    for length in range(7):
        for letters in product("ab", repeat=length):
            key = "".join(letters)
            assert events.admits(key) is (pattern.fullmatch(key) is not None), key


@pytest.mark.parametrize(("key", "admitted"), [("x.end", True), ("x.endx", False), ("x.other", True), ("", False)])
def test_key_passes_by_any_of_the_suffixes(key: str, admitted: bool) -> None:
    assert ObjectEvents(ends=(".end", ".other")).admits(key) is admitted
    assert ObjectEvents().admits(key) is False


class Renamed(PulseFamily):
    """A second family with the same rules."""

    name = "beat"


class Below(PulseFamily):
    """A family whose keys do not say whose they are."""

    name = "below"
    rules = ()

    def parse_key(self, key: str) -> None:
        return None

    def parse_below(self, key: str, known: Callable[[str], ProfileRoot | None]) -> PulseKey | None:
        root = known(key) if key.endswith("/below") else None
        return None if root is None else PulseKey(root, "worker-7", 7)


def test_families_sharing_a_name_or_a_rule_cannot_be_deployed() -> None:
    with pytest.raises(ValueError, match="each name once"):
        Families(PROFILER, PROFILER)
    with pytest.raises(ValueError, match="rule pulse/FastPulse is of pulse and of beat"):
        Families(PulseFamily(), Renamed())
    assert [family.name for family in BOTH] == ["profiler", "pulse"]
    assert BOTH.rule_names == (*NAMES, "pulse/FastPulse")


def test_streams_of_an_unknown_family_are_refused() -> None:
    assert BOTH.of(SYSTEM) is BOTH.get("profiler")
    assert BOTH.of(PULSE) is BOTH.get("pulse")
    assert BOTH.get("training") is None
    with pytest.raises(UnreadableKeyError, match="family kernels is unknown, expected one of profiler, pulse"):
        BOTH.of(StreamKey("job", "algo-1", "kernels"))
    assert Families(PULSES).share(MemoryWorld().objects) == {"pulse": None}


def test_key_belongs_to_the_first_family_that_knows_it() -> None:
    families = Families(PROFILER, Below(), PulseFamily())
    key = pulse_key(ROOT, "worker-0", 5)
    assert families.parse_key(key) == PulseKey(ROOT, "worker-0", 5)
    assert families.parse_key("job/pulse/end") == EndKey(ROOT, "pulse")
    assert families.parse_key("x/below", lambda _: ROOT) == PulseKey(ROOT, "worker-7", 7)
    for unknown in ("x/below", "x/other"):
        with pytest.raises(UnreadableKeyError, match=r", or <job>/pulse/<step>_<worker>\.json"):
            families.parse_key(unknown)
    with pytest.raises(UnreadableKeyError):
        families.parse_key("x/other", lambda _: ROOT)
    assert families.admits("job/pulse/end")
    assert not families.admits("job/other")


def test_job_unknown_to_sagemaker_expects_no_streams() -> None:
    job = replace(JOB, instance_count=2, framework_expected=False)
    assert FAMILIES.expected(job, set()) == {SYSTEM, replace(SYSTEM, node="algo-2")}
    assert FAMILIES.expected(replace(job, arn="unknown:job"), set()) == set()
    assert PULSES.expected(job, {PULSE}) == set()
    assert [rule.name for rule in PULSES.chosen(job)] == ["pulse/FastPulse"]
    assert PULSES.written == ("*/pulse/*",)
    assert PULSES.parse_below("x", lambda _: ROOT) is None


def items(**changed: Any) -> list[StreamRecord]:
    system = StreamRecord(SYSTEM, version=1, state=encode_state(SystemState()), codec=CODEC)
    traces = StreamRecord(StreamKey("job", "algo-1", "kernels"), state=encode_state(CaptureState()), codec=CODEC)
    own = StreamRecord(StreamKey.own("job"), 7, state=encode_state(JobState(reported=["a"])), codec=CODEC)
    return [replace(own, **changed), system, traces, StreamRecord(StreamKey("job", "rank-1", "unheard"))]


@pytest.mark.parametrize("detailed", [True, False])
def test_items_open_by_family_and_unknown_ones_are_kept(
    detailed: bool,
) -> None:
    plan = replace(FAMILIES.plan(JOB), detailed=detailed)
    streams = FAMILIES.open("job", plan, items())
    assert list(streams.families) == [family.name for family in FAMILIES]
    assert [key.stream for key in streams.records] == ["system", "kernels"]
    assert (streams.job_item.version, streams.state.reported) == (7, ["a"])
    profiler = streams.families["profiler"]
    assert isinstance(profiler.streams, LazyStreams) is (not detailed)
    assert streams.stream_of(SYSTEM).state.watermark_s is None
    assert streams.stream_of(SYSTEM) is profiler.streams[SYSTEM]
    assert len(profiler.streams) == 1


def test_missing_empty_or_damaged_own_item_of_a_job_is_reset() -> None:
    plan = FAMILIES.plan(JOB)
    assert FAMILIES.open("job", plan, []).job_item == StreamRecord(StreamKey.own("job"))
    assert FAMILIES.open("job", plan, items(state=b"")).state == JobState()
    damaged = FAMILIES.open("job", plan, items(state=b"rubbish"))
    assert (damaged.state, damaged.job_item.version) == (JobState(), 7)
    with pytest.raises(StateCodecError):
        FAMILIES.open("job", plan, items(codec=CODEC + 1))
    broken = [replace(record, state=b"rubbish") if record.key == SYSTEM else record for record in items()]
    with pytest.raises(StateDamagedError):
        FAMILIES.open("job", plan, broken)


@pytest.mark.parametrize(
    ("interval_ms", "interval_s"), [(None, 0.5), (1_000, 1.0), (100, 0.1), (99, 0.1), (101, 0.101)]
)
def test_profiling_interval_is_in_seconds_and_not_below_minimum(interval_ms: int | None, interval_s: float) -> None:
    assert FAMILIES.plan(replace(JOB, profiling_interval_ms=interval_ms)).interval_s == interval_s


def test_plan_without_settings_runs_all_profiler_rules() -> None:
    plan = BOTH.plan(replace(JOB, episodes={NAME: 3}))
    assert plan.rules == (*NAMES, "pulse/FastPulse")
    assert (plan.disabled, plan.unchosen, plan.faults) == ((), (), {})
    assert (plan.episode_of(NAME), plan.episode_of("BatchSize")) == (3, 0)
    assert (plan.detailed, plan.by_event_time, plan.prices) == (True, False, None)
    assert [rule.name for rule in plan.rules_of("pulse")] == ["pulse/FastPulse"]
    assert plan.rules_of("training") == ()
    assert {NAME, "pulse/FastPulse"} <= plan.node_rules
    assert plan.node_rules < set(plan.rules)
    assert plan.rule_of_state(LowGPUUtilization().state_type) == NAME
    assert plan.rule_of_state(SystemState) is None


def test_single_invoked_rule_disables_other_profiler_rules() -> None:
    plan = BOTH.plan(replace(JOB, rule_settings={"rule_to_invoke": "BatchSize"}))
    assert plan.rules == ("BatchSize", "pulse/FastPulse")
    assert plan.disabled == tuple(name for name in NAMES if name != "BatchSize")
    every = BOTH.plan(replace(JOB, rule_settings={"rule_to_invoke": "ProfilerReport"}))
    assert every.disabled == ()


def test_faulty_settings_name_the_rule_and_their_source() -> None:
    settings = {f"{NAME}_patience": "soon", "BatchSize_patience": "3", "FastPulse_threshold": "fast"}
    job = replace(JOB, rule_settings=settings, setting_sources={f"{NAME}_patience": "tag t"})
    plan = FAMILIES.plan(job)
    fault = plan.faults[NAME]
    assert (fault.field, fault.source) == (f"{NAME}_patience", "tag t")
    assert NAME not in plan.parameters
    with pytest.raises(KeyError):
        plan.parameters_of(NAME)
    assert plan.parameters_of("BatchSize").patience == 3
    assert {name for family in FAMILIES for name in family.settings_types} <= set(plan.parameters)
    unchosen = FAMILIES.plan(replace(JOB, training_rules=()))
    assert unchosen.unchosen
    assert not set(unchosen.unchosen) & set(unchosen.rules)
    assert all(name.startswith("training/") for name in unchosen.unchosen)


def test_custom_rule_planned_alone_replaces_all_others() -> None:
    rule = BatchSize()
    plan = replace(BOTH.plan(JOB), disabled=("A",), faults={"A": RuleConfigError("A", "b", "c", "d")})
    alone = only(plan, rule, rule.parameters_type())
    assert alone.by_family == {"profiler": (rule,), "pulse": ()}
    assert sorted(alone.parameters) == ["BatchSize", REPORT]
    assert (alone.faults, alone.disabled) == ({}, ())
