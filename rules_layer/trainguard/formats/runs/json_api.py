"""What sources ask of a service that answers in JSON; the adapters speak HTTP."""

from collections.abc import Mapping
from typing import Any, Protocol


class JsonApi(Protocol):
    """A service: ``place`` is what people call it."""

    @property
    def place(self) -> str:
        """Where it is, without credentials."""
        ...

    def get(self, path: str, query: Mapping[str, str]) -> Any:
        """Return an answer's JSON; raises ProfileSourceError for a refusal or another answer, PortUnavailableError."""
        ...


class WritableJsonApi(JsonApi, Protocol):
    """A service that takes changes."""

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """Send a change that may be repeated, and return the JSON of the answer; raises as `get` does."""
        ...
