"""A state is judged once for each way of asking, and again as soon as what a rule is shown has changed."""

from dataclasses import dataclass, field
from typing import Any

from trainguard.core.records import JobRecord, Status
from trainguard.engine.installed import FAMILIES
from trainguard.engine.streams.rule_runner import RuleRunner
from trainguard.rules.low_gpu_utilization.rule import LowGPUUtilization
from trainguard.rules.rule_result import RuleResult

PLAN = FAMILIES.plan(JobRecord("job", "arn", "bucket", ""))


@dataclass
class Evaluate:
    """Says how often it was asked."""

    asked: int = 0
    runner: RuleRunner[Any] = field(default_factory=lambda: RuleRunner([LowGPUUtilization()], {}, PLAN))

    def __call__(self, *_: Any) -> RuleResult:
        self.asked += 1
        return RuleResult(Status.OK, f"asked {self.asked} times")

    def run(self) -> None:
        self.runner.run(None, self, watermark_s=60.0, interval_s=0.5)

    def reason(self, *, closed: bool = False) -> str:
        return self.runner.verdicts(self, interval_s=0.5, closed=closed)[0].result.reason


def test_verdicts_of_a_run_are_those_judged_in_it() -> None:
    judge = Evaluate()
    judge.run()
    assert (judge.reason(), judge.reason()) == ("asked 1 times", "asked 1 times")
    judge.run()
    assert judge.reason() == "asked 2 times"


def test_stream_judged_while_running_is_judged_again_as_ended() -> None:
    judge = Evaluate()
    judge.run()
    assert judge.reason(closed=True) == "asked 2 times"
    assert judge.reason() == "asked 3 times"


def test_shrunk_state_is_judged_again() -> None:
    judge = Evaluate()
    judge.run()
    judge.runner.forget()
    assert judge.reason() == "asked 2 times"
