"""What the rules say of a unit or of a job: results with their episodes, and the fires that begin."""

from dataclasses import dataclass

from trainguard.engine.verdicts.episodes import FiringHistory, Liveness
from trainguard.finding import Episode, Finding
from trainguard.ledger.job import Ledger
from trainguard.records import Status
from trainguard.rules.rule_result import RuleResult

JUDGED = frozenset({Status.OK, Status.FIRED})
"""What a rule says when it could tell whether its condition holds."""


@dataclass(frozen=True, slots=True)
class Reach:
    """How far a verdict reaches over the nodes that it is of."""

    affected: int
    nodes: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """A rule's result with its firing history: what its row says.

    ``clear_after_s`` is after how many clean seconds of event time an episode of the rule is over. ``reach`` is None in
    the verdict of one node alone. ``liveness`` is how the episode stands among the job's nodes, ``watermark_s`` the
    event time up to which the job's verdict is known, epoch seconds. ``merged`` are a job's episodes, None in
    the verdict of one node alone; ``merged_earlier`` counts those before them. ``ended`` says that
    the stream or the job has ended. ``worst_first`` are the names in a job's details, in this order; on
    ``waiting_nodes`` the rule has no verdict yet.
    """

    rule: str
    result: RuleResult
    history: FiringHistory
    clear_after_s: float = 0.0
    reach: Reach | None = None
    liveness: Liveness = Liveness.KNOWN
    watermark_s: float | None = None
    merged: tuple[Episode, ...] | None = None
    merged_earlier: int = 0
    ended: bool = False
    worst_first: tuple[str, ...] = ()
    waiting_nodes: tuple[str, ...] = ()

    @property
    def episodes(self) -> tuple[Episode, ...]:
        """When and where the condition held, the newest episodes, oldest first."""
        return self.history.shown_episodes(self.rule) if self.merged is None else self.merged

    @property
    def earlier_episodes(self) -> int:
        """How many episodes there were before these."""
        return self.history.earlier_episodes if self.merged is None else self.merged_earlier

    @property
    def affected_share(self) -> float | None:
        """Share, 0 to 1, of the evaluated time with the condition: as the rule says, else of evaluations."""
        said = self.result.affected_share
        return self.history.affected_share if said is None else said

    def said_of(self, node: str | None, reason: str) -> Finding:
        """Return what the rule says, in the words ``reason``, without what that means: severity, cost and episodes."""
        result = self.result
        return Finding(
            rule=self.rule,
            node=node,
            reason=reason,
            measured=result.measured,
            threshold=result.threshold,
            finding_kind=result.kind,
            facts=result.facts,
        )

    @property
    def over_nodes(self) -> Reach:
        """The verdict's reach; of one node alone, that node."""
        return Reach(1, 1) if self.reach is None else self.reach


@dataclass(frozen=True, slots=True)
class Fire:
    """A verdict with which an episode begins, and no other episode; ``at`` is the watermark, epoch seconds.

    ``ledger`` is of the nodes that the rule judged; None where nothing is known of their GPUs.
    """

    verdict: Verdict
    at: float
    ledger: Ledger | None = None


def shown_status(verdict: Verdict) -> Status:
    """Return the status that a person is shown: FIRED while an episode is open, unless the rule is at fault."""
    status = verdict.result.status
    return Status.FIRED if verdict.history.is_open and status is not Status.ERROR else status
