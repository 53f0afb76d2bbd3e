"""How a node's GPUs were used over the newest twenty minutes, by a plain reading of the definition."""

import numpy as np
import pytest

from trainguard.state.gpu_time import IdleRuns, RecentUse

PART_S = 240.0


def used(samples: list[tuple[float, list[float]]], portion: int) -> RecentUse:
    """Return what is known after samples, which come in portions of so many."""
    use = RecentUse()
    for begin in range(0, len(samples), portion):
        part = samples[begin : begin + portion]
        use.add(np.array([at for at, _ in part]), np.array([percents for _, percents in part]))
    return use


def mean_of(samples: list[tuple[float, list[float]]], parts: set[float]) -> float:
    """Return the busiest GPU's mean over parts."""
    chosen = [percents for at, percents in samples if at // PART_S in parts]
    columns = [[each for each in column if not np.isnan(each)] for column in zip(*chosen, strict=True)]
    return max((sum(column) / len(column) if column else 0.0 for column in columns), default=0.0)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("portion", [1, 3])
def test_means_of_random_samples_are_of_twenty_minute_parts(seed: int, portion: int) -> None:
    random = np.random.default_rng(seed)
    at, samples, quiet_since = 60.0 * seed, list[tuple[float, list[float]]](), None
    for _ in range(30):
        at += float(random.choice([60.0, 60.0, 120.0, 240.0]))
        level = [0.0, 4.0, 5.0, 6.0, np.nan] if seed % 2 else [0.0, 1.0, 12.0]
        samples.append((at, random.choice(level, 2).tolist()))
        if portion > 1 and len(samples) % portion:
            continue
        use = used(samples, portion)
        held = {time // PART_S for time, _ in samples if PART_S * (time // PART_S + 1) > at - 1_200.0}
        highest = mean_of(samples, held)
        assert use.highest_mean == pytest.approx(highest)
        assert use.newest_mean == pytest.approx(mean_of(samples, {at // PART_S}))
        begun = samples[0][0]
        for since in (begun, PART_S * min(held), PART_S * max(held), PART_S * max(held) + 1.0):
            parts = {each for each in held if max(PART_S * each, begun) >= since} or {max(held)}
            assert use.mean_since(since) == pytest.approx(mean_of(samples, parts))
        if portion == 1:
            counted = not all(np.isnan(percents).all() for time, percents in samples if time // PART_S in held)
            is_quiet = counted and highest < 5.0
            began = max(begun, PART_S * min(held))
            quiet_since = None if not is_quiet else began if quiet_since is None else quiet_since
            assert use.quiet_since == quiet_since


def test_unobserved_time_resets_the_recent_use() -> None:
    use = used([(600.0, [3.0]), (660.0, [4.0])], 1)
    assert (use.begun_at, use.quiet_since, use.highest_mean) == (600.0, 600.0, 3.5)
    use.forget()
    assert use == RecentUse()
    assert use.mean_since(0.0) == 0.0
    use.add(np.array([]), np.zeros((0, 1)))
    assert use == RecentUse()


def test_earlier_sums_are_kept_when_a_gpu_appears() -> None:
    use = used([(600.0, [3.0])], 1)
    use.add(np.array([660.0, 960.0]), np.array([[5.0, 80.0], [1.0, 40.0]]))
    assert [(each.part, each.sums, each.counts) for each in use.parts] == [(2, [8, 80], [2, 1]), (4, [1, 40], [1, 1])]
    assert (use.highest_mean, use.newest_mean, use.mean_since(700.0), use.mean_since(600.0)) == (60.0, 40.0, 40.0, 60.0)


@pytest.mark.parametrize(
    ("seconds", "samples", "breaks"), [(10.0, 3, [(100, 10)]), (9.9, 3, []), (10.0, 2, []), (400.4, 9, [(100, 400)])]
)
def test_idle_run_of_ten_seconds_and_three_samples_is_a_break(
    seconds: float, samples: int, breaks: list[tuple[int, int]]
) -> None:
    idle = IdleRuns()
    idle.add(100.2, seconds, samples, long=False, chance=False)
    idle.add(900.0, 1.0, 5, long=True, chance=False)
    idle.add(950.0, 40.0, 7, long=True, chance=True)
    assert (idle.samples, idle.paused, idle.chance, idle.breaks) == (samples + 12, 5, 7, breaks)
    assert idle.breaks_s == (seconds if breaks else 0.0)


def test_newest_breaks_are_remembered_and_all_are_summed() -> None:
    idle = IdleRuns()
    for number in range(10):
        idle.add(100.0 * number, 20.0, 3, long=True, chance=False)
    assert (idle.breaks, idle.breaks_s, idle.paused) == ([(100 * number, 20) for number in range(2, 10)], 200.0, 30)
