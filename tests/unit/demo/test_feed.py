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


def feed_of(recording: Recording, job: str = "job") -> JobFeed:
    return JobFeed(job=job, recording=recording, start=START)


def take_all(feed: JobFeed) -> list[RecordedObject]:
    taken = []
    while feed.upcoming is not None:
        taken.append(feed.take())
    return taken


def judged(minute: int, *nodes: str) -> Progress:
    return Progress(system_through=dict.fromkeys(nodes, START + minute * MINUTE_S))


def test_given_a_recording_when_all_is_taken_then_it_is_the_recording_in_order(short: Recording) -> None:
    feed = feed_of(short)

    taken = take_all(feed)

    assert taken == list(short.objects("job", start=START))
    assert feed.uploaded == [each.key for each in taken]
    assert not feed.stopped


def test_given_nothing_is_left_when_taken_then_the_error_says_of_which_job(short: Recording) -> None:
    feed = feed_of(short, "used-up")
    take_all(feed)

    with pytest.raises(StopIteration, match="used-up"):
        feed.take()


@pytest.mark.parametrize("count", [1, 7, 40, 75])
def test_given_a_job_that_is_stopped_when_all_is_taken_then_it_is_a_job_that_ended_then(
    slow: Recording, count: int
) -> None:
    feed = feed_of(slow)
    before = [feed.take() for _ in range(count)]

    feed.stop()
    after = take_all(feed)

    whole = list(slow.objects("job", start=START))
    assert feed.stopped
    assert before == whole[:count]
    assert [each.key.rpartition("/")[2] for each in after[-2:]] == ["training_job_end.ts"] * 2
    assert len({each.key for each in before + after}) == len(before + after)
    assert max(each.appears_at for each in after) < whole[count].appears_at + MINUTE_S
    assert [each.appears_at for each in after] == sorted(each.appears_at for each in after)


def test_given_a_job_that_is_stopped_when_its_last_files_are_read_then_the_open_minute_is_partial(
    slow: Recording,
) -> None:
    feed = feed_of(slow)
    while feed.uploaded_minutes < 10:
        feed.take()

    feed.stop()
    last_minutes = [each for each in take_all(feed) if "/system/incremental/" in each.key]

    whole = {each.key: each.body for each in slow.objects("job", start=START)}
    assert last_minutes
    for each in last_minutes:
        assert whole[each.key].startswith(each.body)
    assert any(len(each.body) < len(whole[each.key]) for each in last_minutes)


def test_given_a_job_that_was_stopped_or_has_ended_when_stopped_again_then_nothing_changes(short: Recording) -> None:
    stopped, ended = feed_of(short), feed_of(short)
    stopped.take()
    stopped.stop()
    rest = stopped.upcoming
    take_all(ended)

    stopped.stop()
    ended.stop()

    assert stopped.upcoming == rest
    assert not ended.stopped


def test_given_several_jobs_when_asked_for_the_next_then_it_is_the_one_whose_object_appears_first(
    slow: Recording, short: Recording
) -> None:
    feeds = [feed_of(slow, "slow"), feed_of(short, "short")]
    everything = {feed.job: judged(1_000, *(f"algo-{n + 1}" for n in range(feed.nodes))) for feed in feeds}

    taken = []
    while (feed := next_feed(feeds, everything)) is not None:
        taken.append(feed.take())

    assert len(taken) == sum(len(feed.uploaded) for feed in feeds)
    assert [each.appears_at for each in taken] == sorted(each.appears_at for each in taken)


def test_given_a_job_that_is_not_judged_yet_when_uploaded_then_it_stops_at_the_allowance(slow: Recording) -> None:
    feed = feed_of(slow)

    while next_feed([feed], {}) is not None:
        feed.take()

    assert feed.upcoming is not None
    assert feed.upcoming.appears_at > START + AHEAD_S
    # The third minute of both nodes is there, without which the first is never applied.
    assert sum(f"/{START + 2 * MINUTE_S}." in key for key in feed.uploaded) == 2


def test_given_one_node_lags_when_uploaded_then_the_slowest_node_decides(slow: Recording) -> None:
    feed = feed_of(slow)

    while next_feed([feed], {"job": Progress(system_through={"algo-1": START + 1_200.0, "algo-2": START + 600.0})}):
        feed.take()

    assert feed.upcoming is not None
    assert START + 600 + AHEAD_S < feed.upcoming.appears_at < START + 600 + AHEAD_S + 2 * MINUTE_S


def test_given_one_job_waits_when_another_may_upload_then_it_does(slow: Recording) -> None:
    waiting, free = feed_of(slow, "waiting"), feed_of(slow, "free")
    progress = {"free": judged(20, "algo-1", "algo-2")}
    while (feed := next_feed([waiting, free], progress)) is waiting:
        feed.take()
    while (feed := next_feed([waiting, free], progress)) is not None:
        feed.take()

    assert waiting.uploaded_minutes <= AHEAD_S / 60
    assert free.uploaded_minutes > 20


def test_given_a_stopped_job_when_it_is_far_ahead_then_its_last_files_do_not_wait(slow: Recording) -> None:
    feed = feed_of(slow)
    while next_feed([feed], {}) is not None:
        feed.take()

    feed.stop()

    assert next_feed([feed], {}) is feed


def test_given_a_job_that_is_held_when_asked_for_the_next_then_only_others_upload_until_it_is_stopped(
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
def test_given_rows_when_a_rule_has_fired_then_it_is_under_way_until_its_action_is_recorded(
    rows: dict[str, dict[str, object]], under_way: bool
) -> None:
    assert is_fire_under_way(rows) is under_way


def test_given_nodes_of_which_one_is_unknown_when_asked_how_far_then_there_is_no_answer() -> None:
    progress = judged(5, "algo-1")

    assert progress.through(1) == START + 300
    assert progress.through(2) is None


def test_given_cursors_when_applied_objects_are_counted_then_each_lane_has_its_own() -> None:
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
