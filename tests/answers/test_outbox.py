"""What rows, executions and follow-ups hold of verdicts beside their sentences."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from tests.answers.recorded import compare, plain_fields
from tests.support.memory import MemoryWorld
from trainguard.core.finding import Episode, Patience
from trainguard.core.job_policy import LAST_EPISODE
from trainguard.core.records import AlertKind, JobRecord, OutboxEntry, Status, StreamKey, StreamRecord
from trainguard.engine.installed import FAMILIES
from trainguard.engine.outbox import (
    RowContext,
    drain,
    due_notifications,
    enqueue,
    execution_name,
    name_of_execution,
    parameters_shown,
    rule_row,
)
from trainguard.engine.streams.job_streams import JobState, Notified
from trainguard.engine.verdicts.episodes import FiringHistory, StoredEpisode
from trainguard.engine.verdicts.findings import finding_of
from trainguard.engine.verdicts.verdict import Fire, RuleOutcome
from trainguard.pricing.cost import PaidTime
from trainguard.rules.rule_result import Measure, RuleResult

FOLDER = Path(__file__).with_name("outbox")
RULE = "LowGPUUtilization"
ARN = "arn:aws:sagemaker:eu-west-1:111122223333:training-job/bert"
START = 1_795_248_000.0
JOB = JobRecord(
    "bert",
    ARN,
    "profiles",
    "runs/",
    instance_type="ml.p3.2xlarge",
    instance_count=4,
    created_at=START - 90.0,
    started_at=START,
    rule_settings={"LowGPUUtilization_patience": "20"},
)
PLAN = FAMILIES.plan(JOB)
HOUR = START + 3_600.0
FIRST = StoredEpisode(START + 600.0, START + 1_200.0, measured=20.0, gpus=["gpu1"], reason="then.")
SECOND = StoredEpisode(START + 1_800.0, HOUR, measured=12.5, gpus=["gpu0"])
NODES = PaidTime("ml.p3.2xlarge", START, HOUR, 4)


def quiet(rule: str, status: Status = Status.OK) -> RuleOutcome:
    return RuleOutcome(rule, RuleResult(status, f"{rule} is quiet."), FiringHistory())


def said(status: Status, **fields_said: Any) -> RuleResult:
    return RuleResult(status, f"it is {status.value}.", 12.5, 30.0, worst="gpu0", data_points=40, **fields_said)


def held(**changed: Any) -> FiringHistory:
    """Return the history of a rule that fired twice and goes on."""
    history = FiringHistory(
        is_open=True, violations=3, judged=4, times_fired=3, alerted=1, fired_at=HOUR, episodes=[FIRST, SECOND]
    )
    return msgspec.structs.replace(history, **changed)


LONG = Measure("m" * 300, "u" * 300)
VERDICTS: Mapping[str, RuleOutcome] = {
    "never fired": quiet(RULE),
    "without data": quiet(RULE, Status.WAITING_FOR_DATA),
    "warms up": RuleOutcome(RULE, said(Status.WARMING_UP, progress=Patience(seen=3, needed=20)), FiringHistory()),
    "fires": RuleOutcome(RULE, said(Status.FIRED, wasted_share=0.25, affected_share=0.5, advice="Do it."), held()),
    "fires on two of four": RuleOutcome(RULE, said(Status.FIRED, advice="Do it."), held(), reach=(2, 4)),
    "fires where nobody can say": RuleOutcome(RULE, said(Status.FIRED), FiringHistory()),
    "between two evaluations": RuleOutcome(RULE, said(Status.OK, wasted_share=0.25), held()),
    "is over": RuleOutcome(RULE, said(Status.OK, wasted_share=0.1, advice="Did it."), held(is_open=False)),
    "failed while open": RuleOutcome(RULE, said(Status.ERROR), held()),
    "has long names": RuleOutcome(
        RULE,
        RuleResult(
            Status.OK,
            "so\nit is.",
            3.0,
            measure=Measure("m" * 300, "u" * 300),
            worst="w" * 300,
            progress=Patience(seen=30, needed=20),
        ),
        FiringHistory(),
    ),
    "has no dimension": RuleOutcome(RULE, RuleResult(Status.OK, "so.", 3.0, measure=Measure("GPUs")), FiringHistory()),
    "is of a rule that is unknown": quiet("Unheard"),
}
COUNTERS = {"bad_lines": 2, "duplicates": 7, "gaps": 1, "lines": 9}


def context(**changed: Any) -> RowContext:
    whole = RowContext(
        job="bert",
        node=None,
        plan=PLAN,
        watermark_s=HOUR,
        counters={},
        last_fault=None,
        expires_at=None,
        paid_time=NODES,
        generation=0,
    )
    return replace(whole, **changed)


CONTEXTS: Mapping[str, RowContext] = {
    "node": context(
        node="algo-1",
        counters=COUNTERS,
        last_fault="object k: 2 bad_lines",
        paid_time=replace(NODES, nodes=1),
        generation=2,
    ),
    "counted": context(counters=COUNTERS, expires_at=7),
    "degraded": context(counters={"degraded_to_x": 1, "degraded_to_a": 2, "duplicates": 1}),
    "both": context(counters={"degraded_to_x": 1, "bad_lines": 1}, watermark_s=None),
    "no nodes": context(paid_time=replace(NODES, nodes=0)),
}


def test_rows_written_for_verdicts_match_the_reviewed() -> None:
    rows = {name: plain_fields(rule_row(context(), verdict)) for name, verdict in VERDICTS.items()}
    for name, where in CONTEXTS.items():
        rows[f"fires, {name}"] = plain_fields(rule_row(where, VERDICTS["fires"]))
    ranked = finding_of(VERDICTS["fires on two of four"], NODES, "algo-2")
    for name in ("fires", "is over", "never fired"):
        rows[f"{name}, as ranked"] = plain_fields(rule_row(context(), VERDICTS[name], ranked))
    shown = [row.pop("parameters", {}) for row in rows.values()]
    assert shown == [{} if "unknown" in name else shown[0] for name in rows]
    rows["parameters"] = {"of a row": shown[0], "of none": parameters_shown(PLAN, "Unheard")}
    assert parameters_shown(PLAN, RULE) == shown[0]
    compare(rows, FOLDER / "rows.json")


@dataclass
class Outbox:
    """An item, and what was started for it."""

    record: StreamRecord
    job: JobRecord = JOB
    world: MemoryWorld = field(default_factory=MemoryWorld)

    def take(self, *fires: Fire) -> None:
        self.record = enqueue(self.record, fires, job=self.job, plan=FAMILIES.plan(self.job))

    def send(self) -> dict[str, Any]:
        """Start what waits; return what was started now, and what the journal counted."""
        before, noted = set(self.world.executions.started), len(self.world.journal.entries)
        if self.record.version == 0:
            self.record = self.world.nodes.save(self.record)
        self.record = drain(self.record, self.job, self.world.services)
        started = {name: each for name, each in self.world.executions.started.items() if name not in before}
        return {**started, "counted": [f"{each.what}: {each.where}" for each in self.world.journal.entries[noted:]]}


def begun(rule: str, result: RuleResult, *episodes: Episode) -> Fire:
    return Fire(RuleOutcome(rule, result, FiringHistory(is_open=True), merged=episodes), HOUR)


def test_execution_inputs_of_fires_match_the_reviewed() -> None:
    fires = [
        begun(RULE, said(Status.FIRED, affected_share=0.5, advice="Do it."), *held().shown_episodes(RULE)[-1:]),
        begun("CPUBottleneck", RuleResult(Status.FIRED, "a\nb" + "c" * 2_100, advice="d" * 600)),
        begun("BatchSize", RuleResult(Status.FIRED, "so.", time_left_s=60.0), Episode(START, None)),
    ]
    node = Outbox(StreamRecord(StreamKey("bert", "algo-1", "system")))
    own = Outbox(StreamRecord(StreamKey.own("bert")), replace(JOB, instance_count=None, run_links={"W&B": "https://w"}))
    last = Outbox(StreamRecord(StreamKey.own("bert")), replace(JOB, episodes={RULE: LAST_EPISODE, "BatchSize": 98}))
    finding_on: dict[str, Any] = {}
    for name, outbox in (("node", node), ("own", own), ("last", last)):
        outbox.take(*fires)
        first = outbox.record
        outbox.take(begun(RULE, RuleResult(Status.FIRED, "something else.")))
        assert outbox.record == first
        finding_on[name] = outbox.send()
        assert outbox.record.unsent == ()
        stored = outbox.world.nodes.load(outbox.record.key)
        assert stored is not None
        assert stored.unsent == ()
        assert [each.sent for each in outbox.record.outbox.values()] == [True] * 3
        assert outbox.send() == {"counted": []}
        outbox.take()
        assert outbox.record.outbox == {}
    again = Outbox(StreamRecord(StreamKey("bert", "algo-2", "system")), world=node.world)
    again.take(fires[0])
    finding_on["already started"] = again.send()
    compare(finding_on, FOLDER / "fires.json")
    assert len(execution_name(first.unsent[0], "j" * 90)) == 80
    assert name_of_execution("a.b/ü-c_d") == "a-b---c_d"


def follow_ups(
    state: JobState, *verdicts: RuleOutcome, job: JobRecord = JOB, paid_time: PaidTime = NODES
) -> list[OutboxEntry]:
    return due_notifications(job, FAMILIES.plan(job), verdicts, paid_time, state)


def test_entries_of_changing_findings_match_the_reviewed() -> None:
    def told() -> JobState:
        return JobState(notified={RULE: Notified(1, START + 1_800.0, "low")})

    second = replace(JOB, episodes={RULE: 1})
    grown = RuleOutcome(RULE, replace(said(Status.FIRED, wasted_share=0.25), worst="algo-2/gpu0"), held())
    ended = replace(VERDICTS["is over"], result=replace(VERDICTS["is over"].result, worst=None))
    cases: Mapping[str, tuple[Sequence[RuleOutcome], JobRecord, PaidTime, JobState]] = {
        "grew": ([grown], second, NODES, told()),
        "grew, and none knows when it began": ([grown], second, NODES, JobState()),
        "is over": ([ended], second, NODES, told()),
        "is over before it began": (
            [ended],
            second,
            replace(NODES, watermark_s=START),
            told(),
        ),
        "is over, of an older version": (
            [ended],
            second,
            NODES,
            JobState(notified={RULE: Notified(1, None, "low")}),
        ),
        "was notified as over": (
            [ended],
            second,
            NODES,
            JobState(notified={RULE: Notified(1, 0, "low", True)}),
        ),
        "of another episode": ([grown], JOB, NODES, told()),
        "ends with the job": ([grown], replace(second, closing=True), NODES, told()),
        "without data": ([grown], second, replace(NODES, watermark_s=None), told()),
        "failed": ([VERDICTS["failed while open"]], second, NODES, told()),
    }
    answers = {}
    for name, (verdicts, job, paid_time, state) in cases.items():
        entries = follow_ups(state, *verdicts, job=job, paid_time=paid_time)
        answers[name] = {"told": [plain_fields(each) for each in entries], "noted": msgspec.to_builtins(state.notified)}
        assert all(each.kind is not AlertKind.FIRE for each in entries)
        assert follow_ups(state, *verdicts, job=job, paid_time=paid_time) == []
    compare(answers, FOLDER / "news.json")
