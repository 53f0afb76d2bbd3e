"""Which episodes end with a look at a job, from verdicts, what people were notified of, and the job's episodes."""

import pytest

from trainguard.engine.assessment import ended_episodes
from trainguard.engine.streams.job_streams import JobState, Notified
from trainguard.engine.streams.rule_runner import StoredRule
from trainguard.engine.verdicts.episodes import FiringHistory, Liveness
from trainguard.engine.verdicts.verdict import Verdict
from trainguard.records import Status
from trainguard.rules.rule_result import RuleResult

RULE = "LowGPUUtilization"


@pytest.mark.parametrize(
    ("is_open", "liveness", "alerted", "cleared", "ends"),
    [
        pytest.param(False, Liveness.KNOWN, 2, False, True, id="over"),
        pytest.param(True, Liveness.KNOWN, 2, False, False, id="open"),
        pytest.param(False, Liveness.STALE, 2, False, False, id="all of its nodes are silent"),
        pytest.param(True, Liveness.ANEW, 2, False, True, id="open only where it began after they fell silent"),
        pytest.param(True, Liveness.KNOWN, 2, True, True, id="back, after a tick that notified and died"),
        pytest.param(False, Liveness.KNOWN, 1, False, False, id="nobody was alerted of it"),
        pytest.param(False, Liveness.KNOWN, -1, True, False, id="never fired"),
    ],
)
def test_given_a_verdict_when_a_job_is_looked_at_then_its_alerted_episode_ends_or_goes_on(
    is_open: bool, liveness: Liveness, alerted: int, cleared: bool, ends: bool
) -> None:
    verdict = Verdict(
        RULE, RuleResult(Status.OK, "so."), FiringHistory(is_open=is_open, alerted=alerted), liveness=liveness
    )
    state = JobState(
        notified={RULE: Notified(2, 0.0, "high", cleared), "BatchSize": Notified(2, 0.0, "high", cleared=True)}
    )
    assert ended_episodes([verdict], state, {RULE: 2, "BatchSize": 2}) == ({RULE: 2} if ends else {})


def test_given_a_rule_that_fires_for_the_first_time_when_it_is_over_then_its_episode_0_ends() -> None:
    verdict = Verdict(RULE, RuleResult(Status.OK, "so."), FiringHistory(alerted=0))
    assert ended_episodes([verdict], JobState(), {}) == {RULE: 0}


def test_given_nothing_read_yet_when_a_rule_is_judged_then_its_time_of_judgement_has_not_begun() -> None:
    stored = StoredRule()
    for watermark_s in (0.0, 0.0, 1_000.0, 1_060.0):
        stored.note("Rule", RuleResult(Status.FIRED, "so."), watermark_s)
    assert stored.began_at == 1_000.0
    assert stored.last_finding is not None
    assert stored.last_finding.since_s == 60.0
