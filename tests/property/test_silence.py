"""Notifications about findings on nodes that fall silent and come back, whatever the pauses."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from hypothesis import given
from hypothesis import strategies as st

from trainguard.core.finding import AlertKind
from trainguard.core.records import JobRecord, Status
from trainguard.engine.installed import FAMILIES
from trainguard.engine.outbox import due_notifications
from trainguard.engine.streams.job_streams import JobState
from trainguard.engine.streams.rule_runner import RuleRunner, StoredRule
from trainguard.engine.verdicts.verdict import VANISHED_S, RuleOutcome, combine, ends_episode, with_liveness
from trainguard.pricing.cost import PaidTime
from trainguard.rules.low_gpu_utilization.rule import LowGPUUtilizationParameters
from trainguard.rules.protocol import JobRule
from trainguard.rules.rule_inputs import JobView
from trainguard.rules.rule_result import RuleResult

MINUTE = 60.0
SILENT = int(VANISHED_S // MINUTE)
CLEAR = 3


class Held(JobRule[LowGPUUtilizationParameters]):
    """A rule with set answers."""

    name: ClassVar[str] = "LowGPUUtilization"
    parameters_type = LowGPUUtilizationParameters

    def clear_after_s(self, parameters: LowGPUUtilizationParameters, interval_s: float) -> float:
        del parameters, interval_s
        return CLEAR * MINUTE

    def judge(self, view: JobView, parameters: LowGPUUtilizationParameters) -> RuleResult:
        raise NotImplementedError


RULE = Held.name


def said(*, holds: bool) -> RuleResult:
    """Return what the rule says."""
    return RuleResult(Status.FIRED if holds else Status.OK, "so.")


@dataclass
class Node:
    """A node whose condition holds in some minutes, and that uploads nothing in others."""

    holds: Sequence[bool]
    silent: Sequence[bool]
    stored: dict[str, StoredRule] = field(default_factory=dict)
    watermark_s: int | None = None

    @property
    def next(self) -> int:
        """The first minute that was not evaluated."""
        return 0 if self.watermark_s is None else self.watermark_s + 1


@dataclass
class Story:
    """Some nodes, evaluated and looked at each minute as the engine does; ``told`` are the notifications.

    What a node did not upload in time comes when it is back, or, with ``lost``, never.
    """

    nodes: dict[str, Node]
    lost: bool = False
    job: JobRecord = field(default_factory=lambda: JobRecord("job", "arn", "bucket", ""))
    state: JobState = field(default_factory=JobState)
    told: list[tuple[str, int, str]] = field(default_factory=list)

    def run(self) -> list[tuple[str, int, str]]:
        for minute in range(max(len(node.holds) for node in self.nodes.values())):
            for name, node in self.nodes.items():
                if not node.silent[minute]:
                    first = minute if self.lost else node.next
                    for each in range(first, minute + 1):
                        self._evaluate(name, node, each)
            self._tick()
        return self.told

    def kinds(self) -> list[str]:
        return [kind for kind, _, _ in self.run()]

    def _evaluate(self, name: str, node: Node, minute: int) -> None:
        node.watermark_s = minute
        result = said(holds=node.holds[minute])
        runner = RuleRunner([Held()], node.stored, FAMILIES.plan(self.job))
        runner.run(None, lambda *_: result, watermark_s=minute * MINUTE, interval_s=1.0)
        fired = [each for each in self.told if each[0] == "fire"]
        alerted = node.stored[RULE].history.alerted
        if alerted >= len(fired):
            assert alerted == len(fired)
            self.told.append(("fire", alerted, name))

    def _tick(self) -> None:
        parts, ahead = {}, max((node.watermark_s or 0) for node in self.nodes.values()) * MINUTE
        for name, node in self.nodes.items():
            if node.watermark_s is not None:
                result = said(holds=node.holds[node.watermark_s])
                verdict = RuleOutcome(RULE, result, node.stored[RULE].history, CLEAR * MINUTE)
                parts[name] = with_liveness(verdict, node.watermark_s * MINUTE, ahead)
        if not parts:
            return
        whole = combine(RULE, parts)
        paid_time = PaidTime(None, 0.0, ahead, len(parts))
        for entry in due_notifications(self.job, FAMILIES.plan(self.job), [whole], paid_time, self.state):
            if entry.kind is not AlertKind.ESCALATION:  # severity follows the ledger, and here is none
                self.told.append((entry.kind.value, entry.episode, entry.finding.where))
            open_on = [name for name, node in self.nodes.items() if node.stored and self._is_open(node, entry.episode)]
            assert not (entry.kind.value == "cleared" and open_on), "notified as over, and it is not"
        current = self.job.episodes.get(RULE, 0)
        if whole.history.alerted == current and ends_episode(whole):
            self.job = replace(self.job, episodes={RULE: current + 1})

    def _is_open(self, node: Node, episode: int) -> bool:
        stored = node.stored[RULE].history
        return stored.is_open and stored.alerted == episode


def runs(most: int) -> st.SearchStrategy[list[bool]]:
    """Return minutes that are so or otherwise, in runs of up to 40 minutes."""
    pieces = st.lists(st.tuples(st.booleans(), st.integers(1, 40)), min_size=1, max_size=most)
    return pieces.map(lambda each: [value for value, length in each for _ in range(length)])


def padded(values: Sequence[bool], length: int) -> list[bool]:
    return [*values, *([False] * length)][:length]


@given(runs(6), st.booleans(), st.integers(0, 10))
def test_finding_held_through_pauses_notifies_its_start_and_end(silent: list[bool], lost: bool, begins: int) -> None:
    holding = begins + len(silent)
    length = holding + SILENT + 2 * CLEAR + 2
    holds = [begins <= minute < holding for minute in range(length)]
    other = Node([False] * length, [False] * length)
    pausing = Node(holds, padded([*([False] * begins), *silent], length))
    seen = any(hold and not quiet for hold, quiet in zip(holds, pausing.silent, strict=True)) or not lost
    story = Story({"algo-1": pausing, "algo-2": other}, lost)
    assert story.kinds() == (["fire", "cleared"] if seen else [])


@given(st.integers(1, 20), st.integers(0, 60), st.integers(2, 20), st.booleans(), runs(4))
def test_finding_of_a_vanished_node_notifies_once_with_another(
    vanishes: int, waits: int, lasts: int, comes_back: bool, flaps: list[bool]
) -> None:
    begins = vanishes + SILENT + waits
    length = begins + lasts + CLEAR + 2
    gone = [minute >= vanishes for minute in range(length)]
    if comes_back:
        gone[begins + lasts - 1 :] = [False] * (length - begins - lasts + 1)
    fine_again = Node([minute < vanishes for minute in range(length)], gone)
    healthy = Node([False] * length, padded([flap and minute % 9 > 2 for minute, flap in enumerate(flaps)], length))
    second = Node([begins <= minute < begins + lasts for minute in range(length)], [False] * length)
    told = Story({"algo-1": fine_again, "algo-2": healthy, "algo-3": second}, lost=True).run()
    assert told[:2] == [("fire", 0, "algo-1"), ("fire", 1, "algo-3")]
    assert [kind for kind, _, _ in told[2:]] == ["cleared"]


@given(st.lists(st.tuples(runs(8), runs(8)), min_size=1, max_size=3), st.booleans())
def test_any_pauses_invent_no_fire_and_end_no_open_finding(
    drawn: list[tuple[list[bool], list[bool]]], lost: bool
) -> None:
    length = max(len(holds) for holds, _ in drawn) + SILENT
    nodes = {
        f"algo-{index}": Node(padded(holds, length), padded(silent, length))
        for index, (holds, silent) in enumerate(drawn, 1)
    }
    told = Story(nodes, lost).run()
    fires = [each for each in told if each[0] == "fire"]
    began = sum(node.stored[RULE].history.times_fired for node in nodes.values() if node.stored)
    assert bool(fires) == bool(began)
    cleared = [episode for kind, episode, _ in told if kind == "cleared"]
    assert len(cleared) == len(set(cleared))
    # Each fire is a beginning, or that of a node that comes back with its condition after it was notified as over.
    assert len(fires) <= began + len(cleared)


def test_finding_returning_after_its_reported_end_fires_again() -> None:
    length = 60
    pausing = Node([minute < 2 for minute in range(length)], [1 <= minute < 21 for minute in range(length)])
    second = Node([15 <= minute < 17 for minute in range(length)], [False] * length)
    told = Story({"algo-1": second, "algo-2": pausing}).run()
    assert [each for each in told if each[0] == "fire"] == [
        ("fire", 0, "algo-2"),
        ("fire", 1, "algo-1"),
        ("fire", 2, "algo-2"),
    ]
    assert [(kind, episode) for kind, episode, _ in told] == [
        ("fire", 0),
        ("fire", 1),
        ("cleared", 1),
        ("fire", 2),
        ("cleared", 2),
    ]


def test_other_faulty_node_holds_the_episode_through_a_pause() -> None:
    length = 90
    pausing = Node([True] * length, [10 <= minute < 60 for minute in range(length)])
    steady: Any = Node([5 <= minute < 40 for minute in range(length)], [False] * length)
    assert Story({"algo-1": pausing, "algo-2": steady}).run() == [("fire", 0, "algo-1")]
