"""Limits of what names cost, in the table of jobs: streams of a job, and names that objects bring within an hour."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from trainguard.aws.attribute_values import integer, text
from trainguard.aws.dynamodb_table import Expression, Table

if TYPE_CHECKING:
    from trainguard.aws.attribute_values import Item

MET_JOBS = "met-jobs/"
"""Begins the name of an hour's item: no job's name has a slash before an at sign."""

KEPT_S = 86_400
_STREAMS = {"#streams": "OtherStreams"}
_ONE_MORE = Expression("ADD #streams :one", _STREAMS, {":one": integer(1)})


class DynamoJobLimits:
    """Counters in the table of jobs; each moves by one conditional update."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def admit_stream(self, job: str, most: int) -> bool:
        """Count one more stream; False, which is stored, when there are ``most``; True for a job without an item."""
        room = Expression(
            "attribute_exists(#job) AND (attribute_not_exists(#streams) OR #streams < :most)",
            {"#job": "TrainingJobName"},
            {":most": integer(most)},
        )
        if self._table.update(_key(job), _ONE_MORE, room):
            return True
        left_out = Expression("SET #left = :yes", {"#left": "StreamsLeftOut"}, {":yes": {"BOOL": True}})
        full = Expression("#streams >= :most", _STREAMS, {":most": integer(most)})
        return not self._table.update(_key(job), left_out, full)

    def recount_streams(self, job: str, seen: int, actual: int) -> None:
        """Set the number of streams to ``actual`` if it is still ``seen``."""
        self._table.update(
            _key(job),
            Expression("SET #streams = :actual", _STREAMS, {":actual": integer(actual)}),
            Expression("#streams = :seen", values={":seen": integer(seen)}),
        )

    def meet(self, at: float, most: int) -> bool:
        """Count one more name in the hour of ``at``, epoch seconds; False when there are ``most``."""
        return self._table.update(
            _key(MET_JOBS + datetime.fromtimestamp(at, UTC).strftime("%Y%m%d%H")),
            Expression(
                "ADD #met :one SET #expires = :expires",
                {"#met": "Met", "#expires": "ExpiresAt"},
                {":one": integer(1), ":expires": integer(int(at) + KEPT_S)},
            ),
            Expression("attribute_not_exists(#met) OR #met < :most", values={":most": integer(most)}),
        )


def _key(name: str) -> "Item":
    return {"TrainingJobName": text(name)}
