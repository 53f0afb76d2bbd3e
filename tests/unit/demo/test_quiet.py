"""The demonstration waits as long as something changes, and gives up only when nothing does."""

from demo.live.quiet import Quiet


def test_given_something_that_changes_now_and_then_when_waited_for_then_it_is_never_over() -> None:
    now = 0.0
    quiet = Quiet(lambda: now, limit_s=10.0)
    for step in range(100):
        now += 5.0
        quiet.note(step // 2)
        assert not quiet.is_over


def test_given_nothing_that_changes_when_waited_for_then_it_is_over_after_the_limit() -> None:
    now = 100.0
    quiet = Quiet(lambda: now, limit_s=10.0)
    quiet.note("same")
    now = 110.0
    quiet.note("same")
    assert not quiet.is_over
    now = 110.5
    quiet.note("same")
    assert quiet.is_over


def test_given_nothing_noted_at_all_when_waited_for_then_it_is_over_after_the_limit() -> None:
    now = 0.0
    quiet = Quiet(lambda: now, limit_s=10.0)
    now = 11.0
    assert quiet.is_over
