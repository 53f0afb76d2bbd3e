"""Tags of a run of MLflow, written by its REST interface."""

from collections.abc import Mapping

from trainguard.sources.json_api import WritableJsonApi


def write_tags(api: WritableJsonApi, identity: str, tags: Mapping[str, str]) -> None:
    """Set tags of a run, all in one request; those of other names stay. A repeat changes nothing.

    Raises
    ------
    ProfileSourceError
        When there is no such run, or the server refuses the tags.
    PortUnavailableError
        When the server does not answer.
    """
    named = [{"key": name, "value": value} for name, value in tags.items()]
    api.post("runs/log-batch", {"run_id": identity, "tags": named})
