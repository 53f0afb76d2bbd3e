"""From the nodes' verdicts to the job's: the worst node speaks for the job."""

from collections.abc import Mapping, Sequence

from trainguard.engine.episodes import Episode
from trainguard.engine.slots import Verdict
from trainguard.records import Status
from trainguard.rules.protocol import Judgement

_RANK = {
    Status.FIRED: 6,
    Status.ERROR: 5,
    Status.WARMING_UP: 4,
    Status.OK: 3,
    Status.WAITING_FOR_DATA: 2,
    Status.NOT_APPLICABLE: 1,
    Status.DISABLED: 0,
}


def combine(rule: str, verdicts: Mapping[str, Verdict]) -> Verdict:
    """Return the job's verdict of one rule, from its verdicts by node (at least one)."""
    node = max(sorted(verdicts), key=lambda name: _badness(verdicts[name]))
    worst = verdicts[node]
    fired = sum(each.episode.is_open for each in verdicts.values())
    reason = worst.judgement.reason
    if fired and len(verdicts) > 1:
        reason = f"{fired} of {len(verdicts)} nodes fire; worst {node}: {reason}"
    judgement = Judgement(
        status=worst.judgement.status,
        reason=reason,
        measured=worst.judgement.measured,
        threshold=worst.judgement.threshold,
        worst=node if worst.judgement.worst is None else f"{node}/{worst.judgement.worst}",
        data_points=sum(each.judgement.data_points for each in verdicts.values()),
        patience=worst.judgement.patience,
        details={name: dict(verdicts[name].judgement.details) for name in sorted(verdicts)},
    )
    return Verdict(rule, judgement, _episode([each.episode for each in verdicts.values()]))


def _badness(verdict: Verdict) -> tuple[bool, int, int]:
    return verdict.episode.is_open, _RANK[verdict.judgement.status], verdict.episode.violations


def _episode(episodes: Sequence[Episode]) -> Episode:
    """Return the job's episode: open while a node's is; it has fired as often as episodes of the job were alerted."""
    fired_at = [each.fired_at for each in episodes if each.fired_at is not None]
    latest = max((each.alerted for each in episodes), default=-1)
    return Episode(
        is_open=any(each.is_open for each in episodes),
        violations=sum(each.violations for each in episodes),
        times_fired=latest + 1,
        alerted=latest,
        fired_at=max(fired_at, default=None),
    )
