"""States, requests and answers of the agents of clusters, in Bookkeeping.

A cluster's role may read ``requests/<cluster>`` and write ``agents/<cluster>``, and nothing else of the table.
"""

import time
from typing import TypeVar

import msgspec

from trainguard.aws.dynamodb.attributes import integer, text
from trainguard.aws.dynamodb.bookkeeping import AGENTS, REQUESTS, entry_key
from trainguard.aws.dynamodb.table import OfTable
from trainguard.stack.actions.cluster_agents import AgentAnswer, AgentRequest, AgentState

T = TypeVar("T")

# An answer stays as long as logs of stops; a request, which agents read again and again, is over in minutes.
ANSWER_KEPT_S = 400 * 86_400
REQUEST_KEPT_S = 86_400
_NEW = "attribute_not_exists(#Id)"


class DynamoClusterDesk(OfTable):
    """See `ClusterDesk`."""

    def state(self, cluster: str, resource: str) -> AgentState | None:
        return self._read(AGENTS + cluster, f"state/{resource}", AgentState)

    def ask(self, cluster: str, request: AgentRequest) -> None:
        self._write(REQUESTS + cluster, request.id, request, REQUEST_KEPT_S)

    def answer(self, cluster: str, request_id: str) -> AgentAnswer | None:
        return self._read(AGENTS + cluster, f"answer/{request_id}", AgentAnswer)

    def close(self, cluster: str, request_id: str) -> bool:
        return self._write(AGENTS + cluster, f"answer/{request_id}", AgentAnswer(stage="closed"), ANSWER_KEPT_S)

    def _read(self, partition: str, name: str, form: type[T]) -> T | None:
        item = self._table.get(entry_key(partition, name)) or {}
        try:
            return msgspec.json.decode(item.get("Document", {}).get("S", ""), type=form)
        except (msgspec.DecodeError, RecursionError):
            return None

    def _write(self, partition: str, name: str, document: object, kept_s: int) -> bool:
        columns = {
            "Document": text(msgspec.json.encode(document).decode()),
            "ExpiresAt": integer(int(time.time()) + kept_s),
        }
        return self._table.update(entry_key(partition, name), columns, _NEW)
