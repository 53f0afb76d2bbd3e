"""What one job may make at most: whoever writes objects invents nodes, jobs, flapping conditions and late data."""

from dataclasses import replace

import pytest

from tests.support.delivered import UPLOADS
from tests.support.delivered import deliver as ended
from tests.support.delivery import Network
from tests.support.late_events import outside
from tests.support.small_job import JOB, Upload, uploads
from tests.support.verdicts import fired, over
from tests.unit.engine.test_telling import RECORD, RULE, alerted, tell
from trainguard.core.job_policy import LAST_EPISODE, MOST_END_REPORTS, MOST_OTHER_STREAMS
from trainguard.core.layout import ProfileRoot
from trainguard.core.records import AlertKind, JobRecord, StreamKey, StreamRecord
from trainguard.engine import outbox
from trainguard.engine.diagnosis.case import ended_episodes
from trainguard.engine.installed import FAMILIES
from trainguard.engine.jobs import job_registry as admission
from trainguard.engine.streams.job_streams import JobState, Watched
from trainguard.engine.verdicts.verdict import Fire
from trainguard.formats.profile.keys import system_key
from trainguard.report.job_verdict import job_verdict
from trainguard.state.codec import encode_state

SYSTEM = [each for each in uploads() if "system/incremental" in each.key and "algo-1" in each.key]
FEW = 3


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "MOST_OTHER_STREAMS", FEW)
    monkeypatch.setattr(admission, "MOST_NEW_JOBS", FEW)


def deliver(network: Network, *arriving: Upload) -> None:
    for upload in arriving:
        network.put(upload)
        network.announce(upload, upload.at)
    network.run_until(max(each.at for each in arriving), batch_s=0.0)


def by_node(name: str, upload: Upload = SYSTEM[0]) -> Upload:
    return Upload(upload.at, upload.key.replace("algo-1", name), upload.body.replace(b"algo-1", name.encode()))


def by_job(name: str, upload: Upload = SYSTEM[0]) -> Upload:
    return Upload(upload.at, upload.key.replace(JOB, name), upload.body)


def nodes(network: Network, job: str = JOB) -> list[str]:
    return [record.key.node for record in network.world.nodes.of_job(job) if not record.key.is_own]


def test_endless_invented_nodes_keep_items_and_queries_few() -> None:
    network = Network()
    for upload in SYSTEM[:5]:
        deliver(network, *(by_node(f"invented-{number}", upload) for number in range(40)))
    assert len(nodes(network)) == FEW
    assert len({row.node for row in network.world.rows.of_job(JOB)} - {None}) == FEW
    assert network.world.journal.totals["streams_refused"] == 5 * (40 - FEW)
    assert network.world.faults.calls.count("Jobs.admit_stream") <= 40


def test_further_names_of_a_job_known_full_cost_no_write() -> None:
    network = Network()
    deliver(network, *(by_node(f"invented-{number}") for number in range(FEW + 1)))
    before = len(network.world.faults.calls)
    deliver(network, *(by_node(f"another-{number}", SYSTEM[1]) for number in range(50)))
    later = network.world.faults.calls[before:]
    assert [each for each in later if each.startswith(("Jobs.admit", "NodeStates.save", "RuleStates"))] == []


def test_sagemaker_nodes_are_evaluated_after_invented_ones() -> None:
    network = Network()
    deliver(network, *(by_node(f"invented-{number}") for number in range(FEW + 5)))
    deliver(network, *SYSTEM[1:4], *(by_node("algo-2", each) for each in SYSTEM[1:4]))
    assert {"algo-1", "algo-2"} <= set(nodes(network))
    assert network.job().streams_left_out


@pytest.mark.parametrize("name", ["algo-3", "algo-01", "algo-0", "algo-1-1", "ALGO-1"])
def test_name_resembling_one_of_sagemaker_is_not_accepted(name: str) -> None:
    job = JobRecord(JOB, "arn:job", "profiles", "", instance_count=2)
    assert admission.is_named(job, StreamKey(JOB, "algo-2", "system"))
    assert not admission.is_named(job, StreamKey(JOB, name, "system"))
    assert not admission.is_named(replace(job, arn="unknown:job"), StreamKey(JOB, "algo-2", "system"))


def test_streams_left_out_are_never_reported_as_all_clear() -> None:
    network = Network()
    deliver(network, *SYSTEM[:12], *(by_node(f"invented-{number}", SYSTEM[11]) for number in range(FEW + 1)))
    network.run_scheduler()
    job = network.job()
    assert any("not evaluated" in fault for fault in job.faults)
    rows = [row for row in network.world.rows.of_job(JOB) if row.node is None]
    assert rows
    assert {row.rule: row.finding.reason for row in rows if "1 stream left out" not in row.finding.reason} == {}
    verdict = job_verdict(network.world.jobs, network.world.rows, JOB, now=network.now)
    assert verdict.verdict != "idle"
    assert verdict.certainty != "high"


def test_stream_of_a_failed_evaluation_is_not_counted() -> None:
    network = Network()
    deliver(network, by_node("invented-1"))
    for _ in range(FEW - 1):
        network.world.jobs.admit_stream(JOB, FEW)
    assert network.job().other_streams == FEW
    network.run_scheduler()
    assert network.job().other_streams == 1


def test_item_with_hostile_names_at_the_limit_fits_in_dynamodb() -> None:
    names = [f"{number:x}" * 64 for number in range(MOST_OTHER_STREAMS)]
    state = JobState(watched={f"{name[:63]}#system": Watched(9, 1.8e9 + place) for place, name in enumerate(names)})
    assert len(encode_state(state)) < 380_000


def test_endless_invented_jobs_are_limited_per_hour() -> None:
    network = outside()
    deliver(network, *(by_job(f"invented-{number}") for number in range(50)))
    assert len(network.world.jobs.active()) == FEW
    assert network.world.journal.totals["jobs_refused"] == 50 - FEW
    assert network.world.faults.calls.count("TrainingJobs.describe") <= FEW
    network.announce(by_job("one-more"), SYSTEM[0].at + 3_600.0)
    network.run_until(SYSTEM[0].at + 3_600.0, batch_s=0.0)
    assert "one-more" in network.world.jobs.active()


def test_endless_recurrence_leaves_the_last_episode_open() -> None:
    verdicts = {episode: alerted(over(RULE), episode=episode) for episode in (LAST_EPISODE - 1, LAST_EPISODE)}
    ended = [ended_episodes([each], JobState(), {RULE: episode}) for episode, each in verdicts.items()]
    assert ended == [{RULE: LAST_EPISODE - 1}, {}]
    told = {}
    for episode, each in verdicts.items():
        told[episode] = [kind for kind, _, _ in tell(JobState(), each, job=replace(RECORD, episodes={RULE: episode}))]
    assert told == {LAST_EPISODE - 1: [AlertKind.CLEARED], LAST_EPISODE: []}
    assert any(RULE in fault for fault in replace(RECORD, episodes={RULE: LAST_EPISODE}).faults)
    assert replace(RECORD, episodes={RULE: LAST_EPISODE - 1}).faults == ()


@pytest.mark.parametrize(("episode", "last"), [(LAST_EPISODE - 1, False), (LAST_EPISODE, True)])
def test_alert_of_the_last_fire_of_a_rule_says_so(episode: int, last: bool) -> None:
    job = replace(RECORD, episodes={RULE: episode})
    fire = Fire(replace(fired(RULE, advice="Do it."), merged=()), 60.0)
    record = outbox.enqueue(StreamRecord(StreamKey(JOB, "algo-1", "system")), [fire], job=job, plan=FAMILIES.plan(job))
    (entry,) = record.outbox.values()
    assert (outbox.LAST_FIRE in (entry.finding.advice or "")) == last


def test_endless_data_after_the_end_make_a_limited_report_count() -> None:
    network = Network()
    ended(network, UPLOADS)
    first = len(network.world.reports.started)
    for number in range(1, MOST_END_REPORTS + 6):
        at, last = network.now + 60.0, SYSTEM[-1]
        minute = int(last.key.rpartition("/")[2].partition(".")[0]) + 60 * number
        deliver(network, Upload(at, system_key(ProfileRoot("", JOB), "algo-1", minute), last.body))
    assert (first, len(network.world.reports.started)) == (1, MOST_END_REPORTS)
    assert network.world.journal.totals["reports_refused"] == 6
    assert not network.job().active
