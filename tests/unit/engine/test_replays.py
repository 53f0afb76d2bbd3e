"""What a replay is called: as no training job and no profile object can be."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.small_job import JOB, START
from trainguard.core.errors import RequestError, UnreadableKeyError
from trainguard.core.layout import ProfileRoot
from trainguard.engine.jobs.replay_names import JOB_NAME, replay_label, replay_name, replayed_job
from trainguard.formats.profile.keys import parse_key, system_key

NAME = f"{JOB}@replay-again"


def test_unnamed_replay_is_called_by_its_time_in_utc() -> None:
    assert replay_name(JOB, replay_label(START + 0.9)) == f"{JOB}@replay-20261121T080000Z"


@given(label=st.text(max_size=44), job=st.from_regex(JOB_NAME, fullmatch=True))
def test_replay_name_is_no_training_job_name_and_no_key(label: str, job: str) -> None:
    try:
        name = replay_name(job, label)
    except RequestError:
        return
    assert not JOB_NAME.fullmatch(name)
    assert replayed_job(name) == job
    with pytest.raises(UnreadableKeyError):
        parse_key(system_key(ProfileRoot("", name), "algo-1", START))


@pytest.mark.parametrize(
    "name", [JOB, f"{JOB}@replay", f"{JOB}@replay-", "@replay-x", f"{JOB}@replay-x/y", "a b@replay-x"]
)
def test_given_other_names_when_asked_then_they_are_no_replays(name: str) -> None:
    assert replayed_job(name) is None
