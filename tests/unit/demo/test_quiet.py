"""The demonstration waits as long as something changes, and gives up only when nothing does."""

from demo.live.quiet import Quiet


def test_occasional_changes_keep_the_wait_going() -> None:
    now = 0.0
    quiet = Quiet(lambda: now, limit_s=10.0)
    for step in range(100):
        now += 5.0
        quiet.note(step // 2)
        assert not quiet.is_over


def test_wait_is_over_after_the_limit_without_changes() -> None:
    now = 100.0
    quiet = Quiet(lambda: now, limit_s=10.0)
    quiet.note("same")
    now = 110.0
    quiet.note("same")
    assert not quiet.is_over
    now = 110.5
    quiet.note("same")
    assert quiet.is_over


def test_wait_is_over_after_the_limit_without_any_notes() -> None:
    now = 0.0
    quiet = Quiet(lambda: now, limit_s=10.0)
    now = 11.0
    assert quiet.is_over
