"""What a job uploads next, and how uploads wait for their evaluation."""

from pathlib import Path

import pytest

from demo.live.feed import AHEAD_S, JobFeed, Progress, is_fire_under_way, next_feed
from demo.make_recordings import RECORDINGS
from demo.recording import Recording
from demo.uploads import RecordedObject

START = 1_795_252_200
MINUTE_S = 60


@pytest.fixture(scope="module")
def slow() -> Recording:
    return Recording.load(RECORDINGS / "slow_data_loader.npz")


@pytest.fixture(scope="module")
def short() -> Recording:
    return Recording.load(Path(RECORDINGS) / "slow_steps.npz")


@pytest.fixture(scope="module")
def slow_objects(slow: Recording) -> list[RecordedObject]:
    return list(slow.objects("job", start=START))


def feed_of(recording: Recording, job: str = "job") -> JobFeed:
    return JobFeed(job=job, recording=recording, start=START)


def take_all(feed: JobFeed) -> list[RecordedObject]:
    taken = []
    while feed.upcoming is not None:
        taken.append(feed.take())
    return taken


def judged(minute: int, *nodes: str) -> Progress:
    return Progress(system_through=dict.fromkeys(nodes, START + minute * MINUTE_S))


def test_recording_is_taken_whole_in_its_order(short: Recording) -> None:
    feed = feed_of(short)

    taken = take_all(feed)

    assert taken == list(short.objects("job", start=START))
    assert feed.uploaded == [each.key for each in taken]
    assert not feed.stopped


def test_taking_from_an_empty_feed_names_its_job(short: Recording) -> None:
    feed = feed_of(short, "used-up")
    take_all(feed)

    with pytest.raises(StopIteration, match="used-up"):
        feed.take()


@pytest.mark.parametrize("count", [1, 40])
def test_stopped_job_yields_a_job_that_ended_at_the_stop(
    slow: Recording, slow_objects: list[RecordedObject], count: int
) -> None:
    feed = feed_of(slow)
    before = [feed.take() for _ in range(count)]

    feed.stop()
    after = take_all(feed)

    whole = slow_objects
    assert feed.stopped
    assert before == whole[:count]
    assert [each.key.rpartition("/")[2] for each in after[-2:]] == ["training_job_end.ts"] * 2
    assert len({each.key for each in before + after}) == len(before + after)
    assert max(each.appears_at for each in after) < whole[count].appears_at + MINUTE_S
    assert [each.appears_at for each in after] == sorted(each.appears_at for each in after)


def test_last_files_of_a_stopped_job_have_a_partial_minute(
    slow: Recording,
    slow_objects: list[RecordedObject],
) -> None:
    feed = feed_of(slow)
    while feed.uploaded_minutes < 10:
        feed.take()

    feed.stop()
    last_minutes = [each for each in take_all(feed) if "/system/incremental/" in each.key]

    whole = {each.key: each.body for each in slow_objects}
    assert last_minutes
    for each in last_minutes:
        assert whole[each.key].startswith(each.body)
    assert any(len(each.body) < len(whole[each.key]) for each in last_minutes)


def test_stop_of_a_stopped_or_ended_job_changes_nothing(short: Recording) -> None:
    stopped, ended = feed_of(short), feed_of(short)
    stopped.take()
    stopped.stop()
    rest = stopped.upcoming
    take_all(ended)

    stopped.stop()
    ended.stop()

    assert stopped.upcoming == rest
    assert not ended.stopped


def test_next_feed_is_the_one_with_the_earliest_object(slow: Recording, short: Recording) -> None:
    feeds = [feed_of(slow, "slow"), feed_of(short, "short")]
    everything = {feed.job: judged(1_000, *(f"algo-{n + 1}" for n in range(feed.nodes))) for feed in feeds}

    taken = []
    while (feed := next_feed(feeds, everything)) is not None:
        taken.append(feed.take())

    assert len(taken) == sum(len(feed.uploaded) for feed in feeds)
    assert [each.appears_at for each in taken] == sorted(each.appears_at for each in taken)


def test_job_not_judged_yet_uploads_up_to_the_allowance(slow: Recording) -> None:
    feed = feed_of(slow)

    while next_feed([feed], {}) is not None:
        feed.take()

    assert feed.upcoming is not None
    assert feed.upcoming.appears_at > START + AHEAD_S
    # The third minute of both nodes is there, without which the first is never applied.
    assert sum(f"/{START + 2 * MINUTE_S}." in key for key in feed.uploaded) == 2


def test_slowest_node_limits_the_upload(slow: Recording) -> None:
    feed = feed_of(slow)

    while next_feed([feed], {"job": Progress(system_through={"algo-1": START + 1_200.0, "algo-2": START + 600.0})}):
        feed.take()

    assert feed.upcoming is not None
    assert START + 600 + AHEAD_S < feed.upcoming.appears_at < START + 600 + AHEAD_S + 2 * MINUTE_S


def test_other_job_uploads_while_one_waits(slow: Recording) -> None:
    waiting, free = feed_of(slow, "waiting"), feed_of(slow, "free")
    progress = {"free": judged(20, "algo-1", "algo-2")}
    while (feed := next_feed([waiting, free], progress)) is waiting:
        feed.take()
    while (feed := next_feed([waiting, free], progress)) is not None:
        feed.take()

    assert waiting.uploaded_minutes <= AHEAD_S / 60
    assert free.uploaded_minutes > 20


def test_last_files_of_a_stopped_job_far_ahead_do_not_wait(slow: Recording) -> None:
    feed = feed_of(slow)
    while next_feed([feed], {}) is not None:
        feed.take()

    feed.stop()

    assert next_feed([feed], {}) is feed


def test_held_job_does_not_upload_until_it_is_stopped(
    slow: Recording,
) -> None:
    held, free = feed_of(slow, "held"), feed_of(slow, "other")
    held.take()
    feeds = [held, free]

    assert next_feed(feeds, {}, held={"held"}) is free
    assert next_feed([held], {}, held={"held"}) is None
    held.stop()
    assert next_feed([held], {}, held={"held"}) is held


@pytest.mark.parametrize(
    ("rows", "under_way"),
    [
        ({}, False),
        ({"R": {"Status": "OK"}, "R#algo-1": {"Status": "OK"}}, False),
        ({"R#algo-1": {"Status": "FIRED"}}, True),
        ({"R": {"Status": "OK"}, "R#algo-1": {"Status": "FIRED"}}, True),
        ({"R": {"Status": "FIRED"}}, True),
        ({"R": {"Status": "FIRED", "Action": "stopped"}, "R#algo-1": {"Status": "FIRED"}}, False),
        ({"R": {"Status": "FIRED", "Action": "stopped"}, "Q": {"Status": "FIRED"}}, True),
        ({"R": {"Status": "FIRED", "Action": "stopped"}, "ProfilerReport": {"Status": "FIRED"}}, False),
    ],
)
def test_fired_rule_is_under_way_until_its_action_is_recorded(
    rows: dict[str, dict[str, object]], under_way: bool
) -> None:
    assert is_fire_under_way(rows) is under_way


def test_progress_is_unknown_while_one_node_is_unknown() -> None:
    progress = judged(5, "algo-1")

    assert progress.through(1) == START + 300
    assert progress.through(2) is None


def test_applied_objects_are_counted_per_lane_by_cursor() -> None:
    root = "job/profiler-output"
    keys = [
        f"{root}/system/incremental/2026112109/{START}.algo-1.json",
        f"{root}/system/incremental/2026112109/{START + 60}.algo-1.json",
        f"{root}/system/incremental/2026112109/{START}.algo-2.json",
        f"{root}/framework/pevents/2026112109/{START}000000_7-algo-1_pythontimeline.json",
        f"{root}/framework/pevents/2026112109/{START}000000_8-algo-1_pythontimeline.json",
        f"{root}/system/training_job_end.ts",
    ]
    progress = Progress(cursors={"algo-1": {"minute": START, "newest": START + 60, "7/pythontimeline": START * 10**6}})

    assert progress.applied(keys) == 2
    assert progress.applied([]) == 0
