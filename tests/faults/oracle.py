"""What must be true after a trial: the state of an undisturbed run, each fire once, nothing lost."""

from functools import cache

from tests.faults.jobs import JOB, Shape, describe
from tests.faults.play import Play, played
from tests.faults.stops import LIMIT
from tests.faults.trial import Trial
from tests.support.delivery import BY_SCHEDULER
from trainguard.engine.streams.session import DELIVERY_COUNTERS

State = dict[str, object]


def state_of(play: Play) -> State:
    """Return all that must not depend on delivery and failures."""
    world = play.world
    state: State = {}
    for key in play.trial.shape.streams:
        record = world.nodes.load(key)
        assert record is not None, f"{key.node_kind} has no item"
        counters = {name: count for name, count in record.counters.items() if name not in DELIVERY_COUNTERS}
        state[key.node_kind] = (record.state, dict(record.cursors), dict(record.pending), counters, record.closed)
        assert not record.unsent, f"{key.node_kind} has fires that wait"
    for row in world.rows.of_job(JOB):
        fired_at = row.fired_at is not None if row.rule in BY_SCHEDULER else row.fired_at
        fired = (row.violations, row.times_fired, fired_at)
        found = (row.finding.measured, row.finding.severity, row.worst)
        state[f"row {row.target}"] = (row.status, found, row.data_points, row.evaluated_through, fired)
    state["fires"] = sorted(
        (str(each["rule"]), str(each["episode"]))
        for each in world.executions.started.values()
        if each["kind"] == "fire"
    )
    return state


@cache
def undisturbed(shape: Shape) -> State:
    """Return the state after a run in which nothing goes wrong."""
    play = played(Trial(shape))
    assert play.fire_path.made or shape.poison or any(shape.skew_s), "nothing has fired in time for a stop"
    return state_of(play)


def wrong(trial: Trial) -> str | None:
    """Play a trial; return what is wrong with what it leaves, None when nothing is."""
    expected = undisturbed(trial.shape)
    try:
        play = played(trial)
        state = state_of(play)
    except AssertionError as fault:
        return str(fault)
    for name in sorted(expected.keys() | state.keys()):
        if state.get(name) != expected.get(name):
            return f"{name}: {state.get(name)!r}, undisturbed {expected.get(name)!r}"
    return _effects(play)


def _effects(play: Play) -> str | None:
    """Return what is wrong with alerts, reports and stops."""
    alerts = [
        (each["kind"], each["rule"], each["episode"], each["severity"], each["previousSeverity"])
        for each in play.world.executions.started.values()
    ]
    if len(alerts) != len(set(alerts)):
        return f"alerts twice: {alerts}"
    reports = len(play.world.reports.started)
    anew = sum(len(play.trial.of(kind)) for kind in ("after the end", "deleted item", "damaged item"))
    if not 1 <= reports <= 1 + anew:
        return f"{reports} reports, with {anew} objects after the end and items computed again"
    own = describe(play.trial.shape)
    others = [made for made in play.fire_path.made if made[1:] != (own.arn, own.created_at)]
    if others:
        return f"another job of the same name was stopped: {others}"
    if len(play.fire_path.hour) > LIMIT:
        return f"stops of {len(play.fire_path.hour)} jobs within the hour, {LIMIT} allowed"
    return None
