"""One folder name in many places: every job is what it is alone, in whatever order its objects come."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.late_events import arrive, outside, settle
from tests.support.small_job import BUCKET, JOB
from tests.unit.engine.test_names import (
    ATTACKER,
    MUTING,
    NAMING,
    PLACES,
    STAGING,
    alone,
    at,
    from_bucket,
    item,
    named,
    node,
)
from trainguard.core.layout import ProfileRoot

ORDERS = st.permutations([(place, number) for place in PLACES for number in range(2)])


@settings(max_examples=8)
@given(order=ORDERS, foreign=st.integers(0, 8))
def test_equal_folder_names_of_many_places_stay_separate_jobs(order: list[tuple[str, int]], foreign: int) -> None:
    network = outside()
    for count, (place, half) in enumerate(order):
        if count == foreign:
            for upload in at("", file=MUTING):
                from_bucket(network, "another-bucket", upload)
        whole = at(place, file=STAGING if place == ATTACKER else NAMING)
        arrive(network, whole[:3] if half == 0 else whole[3:])
    for place in PLACES:
        job = item(network, named(place))
        assert (job.bucket, job.prefix, job.root, job.policy.evaluated) == (
            BUCKET,
            place,
            ProfileRoot(place, JOB),
            True,
        )
        settle(network, 6)
        assert node(network, named(place)).watermark_s == alone(place)[2]
    assert item(network, JOB).policy.alerts.muted == ()
