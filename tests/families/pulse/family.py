"""A family of rules that the product does not have: all that a new family takes, in files of its own."""

from collections.abc import Sequence

from tests.families.pulse.keys import PULSE, match_key
from tests.families.pulse.rule import FastPulse
from tests.families.pulse.stream import PulseSession, PulseStream, state_of
from trainguard.core.records import JobRecord, StreamRecord
from trainguard.engine.family import Family, ObjectEvents, ObjectSource
from trainguard.engine.plan import RulePlan
from trainguard.engine.streams.job_streams import FamilyStreams, FamilyVerdicts, JobMoment, JobState
from trainguard.engine.verdicts.verdict import combine


class PulseStreams(FamilyStreams):
    """The pulse of a job's workers."""

    def judge(self, job: JobRecord, plan: RulePlan, job_state: JobState, moment: JobMoment) -> FamilyVerdicts:
        return [combine(rule, parts) for rule, parts in self.unit_verdicts().items()], []


class PulseFamily(Family):
    """One stream a worker, in the order of steps."""

    name = PULSE
    title = "Pulse"
    units = "workers"
    expected_keys = "<job>/pulse/<step>_<worker>.json"
    events = ObjectEvents(wildcards=("*/pulse/*_worker-*.json",), ends=("/pulse/end",))
    object_cap_bytes = 1_000
    reads = ("*/pulse/*",)
    streams_type = PulseStreams
    report = "tests.families.pulse.report:REPORT_PARTS"

    rules: Sequence[FastPulse] = (FastPulse(),)
    parse_key = staticmethod(match_key)

    def open_session(self, record: StreamRecord, source: ObjectSource, plan: RulePlan) -> PulseSession:
        return PulseSession(record, source, plan)

    def open_stream(self, record: StreamRecord, plan: RulePlan) -> PulseStream:
        return PulseStream(record.key.node, state_of(record), plan)
