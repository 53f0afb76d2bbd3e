"""Which episodes end with a look at a job, from verdicts, what people were notified of, and the job's episodes."""

import pytest

from trainguard.core.records import Status
from trainguard.engine.diagnosis.case import ended_episodes
from trainguard.engine.streams.job_streams import JobState, Notified
from trainguard.engine.streams.rule_runner import StoredRule
from trainguard.engine.verdicts.episodes import FiringHistory, Liveness
from trainguard.engine.verdicts.verdict import RuleOutcome
from trainguard.rules.rule_result import RuleResult

RULE = "LowGPUUtilization"


@pytest.mark.parametrize(
    ("is_open", "liveness", "alerted", "cleared", "ends"),
    [
        pytest.param(False, Liveness.KNOWN, 2, False, True, id="over"),
        pytest.param(True, Liveness.KNOWN, 2, False, False, id="open"),
        pytest.param(False, Liveness.STALE, 2, False, False, id="all of its nodes are silent"),
        pytest.param(True, Liveness.RESTARTED, 2, False, True, id="open only where it began after they fell silent"),
        pytest.param(
            True, Liveness.KNOWN, 2, True, True, id="back, after a run of the scheduler that notified and died"
        ),
        pytest.param(False, Liveness.KNOWN, 1, False, False, id="nobody was alerted of it"),
        pytest.param(False, Liveness.KNOWN, -1, True, False, id="never fired"),
    ],
)
def test_alerted_episode_ends_or_goes_on_with_the_verdict(
    is_open: bool, liveness: Liveness, alerted: int, cleared: bool, ends: bool
) -> None:
    verdict = RuleOutcome(
        RULE, RuleResult(Status.OK, "so."), FiringHistory(is_open=is_open, alerted=alerted), liveness=liveness
    )
    state = JobState(
        notified={RULE: Notified(2, 0.0, "high", cleared), "BatchSize": Notified(2, 0.0, "high", cleared=True)}
    )
    assert ended_episodes([verdict], state, {RULE: 2, "BatchSize": 2}) == ({RULE: 2} if ends else {})


def test_first_fire_of_a_rule_ends_as_episode_0() -> None:
    verdict = RuleOutcome(RULE, RuleResult(Status.OK, "so."), FiringHistory(alerted=0))
    assert ended_episodes([verdict], JobState(), {}) == {RULE: 0}


def test_judgement_time_has_not_begun_before_the_first_read() -> None:
    stored = StoredRule()
    for watermark_s in (0.0, 0.0, 1_000.0, 1_060.0):
        stored.note(RuleResult(Status.FIRED, "so."), watermark_s)
    assert stored.began_at == 1_000.0
    assert stored.last_finding is not None
    assert stored.last_finding.since_s == 60.0
