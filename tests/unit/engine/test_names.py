"""Names of places: safe, reversible, and never shared."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.delivery import Network
from tests.support.small_job import BUCKET, JOB, describe
from trainguard.core.layout import ProfileRoot
from trainguard.core.records import JobRecord
from trainguard.engine.jobs.job_registry import job_of_place
from trainguard.engine.jobs.lifecycle import REASON
from trainguard.engine.jobs.replay_names import JOB_NAME, replay_name, replayed_job

ATTACKER, TEAM = "attacker/", "team-a/runs/"
PLACES = ("", ATTACKER, TEAM, f"{ATTACKER}{TEAM}")


def test_reason_for_a_lost_name_does_not_mention_sagemaker() -> None:
    assert "SageMaker" not in REASON


NAMES = {
    "": "job",
    "team-a/": "job@team-a/",
    "team a/": "job@team%20a/",
    "evil.example/": "job@evil%2Eexample/",
    "a/b=c/": "job@a/b=c/",
    "$(rm -rf ~)/": "job@%24%28rm%20-rf%20%7E%29/",
    "\u00fc/": "job@%C3%BC/",
    "replay-1/": "job@replay-1/",
    "a@b/": "job@a%40b/",
}


@pytest.mark.parametrize(("prefix", "name"), NAMES.items())
def test_name_of_a_place_is_safe_to_paste_and_reversible(prefix: str, name: str) -> None:
    root = ProfileRoot(prefix, "job")
    assert root.place_name == name
    assert ProfileRoot.of_job(prefix, name) == ProfileRoot.named(name) == root
    assert JOB_NAME.fullmatch(name)
    assert replayed_job(name) is None
    replay = replay_name(name, "then")
    assert replayed_job(replay) == name
    assert ProfileRoot.of_job(prefix, replay).job == "job@replay-then"


prefixes = st.lists(st.text(min_size=1, max_size=40).filter(lambda each: "/" not in each), max_size=20).map(
    lambda parts: "".join(f"{part}/" for part in parts)
)


@given(first=prefixes, second=prefixes)
def test_different_places_never_share_a_name(first: str, second: str) -> None:
    roots = [ProfileRoot(prefix, "job") for prefix in (first, second)]
    assert (roots[0].place_name == roots[1].place_name) == (first == second)
    for root in roots:
        assert JOB_NAME.fullmatch(root.place_name)
        assert ProfileRoot.of_job(root.prefix, root.place_name) == root
        assert not root.place_name.startswith("tuning-job/")
        assert len(root.place_name) < 300


def test_job_of_a_place_is_preferably_that_of_sagemaker() -> None:
    network = Network()
    jobs = network.world.jobs
    theirs = JobRecord(JOB, describe().arn, BUCKET, TEAM)
    jobs.register(theirs)
    for prefix in PLACES:
        assert job_of_place(jobs, BUCKET, ProfileRoot(prefix, JOB)) == theirs
    assert job_of_place(jobs, BUCKET, ProfileRoot("", "other")) is None
