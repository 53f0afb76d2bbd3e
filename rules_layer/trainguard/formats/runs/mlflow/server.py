"""A run of MLflow by its REST interface: a tracking server, or a managed one."""

from collections.abc import Iterator, Mapping
from typing import Any

from trainguard.core.errors import ProfileSourceError
from trainguard.formats.runs.mlflow.logged import MOST_VALUES, Logged, RunInfo, logged, run_of, whole
from trainguard.formats.runs.run import JsonApi, SourceRun, WritableJsonApi

_PAGE = 25_000
_MOST_KEYS = 10_000
_USER = "mlflow.user"


def read_server_run(api: JsonApi, server: str, identity: str) -> SourceRun:
    """Read a run; ``server`` is ``https://host``, empty where no page shows it.

    Raises ProfileSourceError when there is no such run, or an answer is none of MLflow; PortUnavailableError.
    """
    fetched = _mapping(api.get("runs/get", {"run_id": identity}), "run", server)
    info = _mapping(fetched, "info", server)
    metrics = _mapping(fetched, "data", server, otherwise={}).get("metrics", [])
    metrics = metrics if isinstance(metrics, list) else []
    keys = sorted({each["key"] for each in metrics if isinstance(each, dict) and isinstance(each.get("key"), str)})
    experiment = info.get("experiment_id")
    link = f"{server}/#/experiments/{experiment}/runs/{identity}" if server and str(experiment).isalnum() else None
    described = RunInfo(
        identity=identity,
        name=str(info.get("run_name") or ""),
        status=str(info.get("status")),
        started_ms=whole(info.get("start_time")),
        ended_ms=whole(info.get("end_time")),
        link=link,
        user=_user(info, fetched.get("data")),
    )
    return run_of(described, _values(api, server, identity, keys[:_MOST_KEYS]))


def _user(info: Mapping[str, Any], data: Any) -> str:
    """Return the user of the tag, in older versions that of the run itself."""
    tags = data.get("tags") if isinstance(data, dict) else None
    tags = tags if isinstance(tags, list) else []
    tagged = [each for each in tags if isinstance(each, dict) and each.get("key") == _USER]
    found = tagged[0].get("value") if tagged else info.get("user_id")
    return found if isinstance(found, str) else ""


def _values(api: JsonApi, server: str, identity: str, keys: list[str]) -> Iterator[Logged | None]:
    left = MOST_VALUES
    for key in keys:
        token: Any = ""
        while left >= 0:
            query = {"run_id": identity, "metric_key": key, "max_results": str(_PAGE)}
            answer = api.get("metrics/get-history", {**query, "page_token": token} if token else query)
            if not isinstance(answer, dict):
                raise ProfileSourceError(server, f"the history of {key!r} is no object, expected an answer of MLflow")
            found = answer.get("metrics", [])
            if not isinstance(found, list):
                raise ProfileSourceError(server, f"the metrics of {key!r} are no list, expected those of MLflow")
            left -= len(found)
            for each in found:
                entry = each if isinstance(each, dict) else {}
                at_ms, step = whole(entry.get("timestamp")), whole(entry.get("step", 0))
                yield logged(entry.get("key"), entry.get("value", 0.0), at_ms, step)
            before, token = token, answer.get("next_page_token")
            if not isinstance(token, str) or not token or not found or token == before:
                break


def _mapping(answer: Any, name: str, server: str, otherwise: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
    found = answer.get(name, otherwise) if isinstance(answer, dict) else None
    if not isinstance(found, dict):
        raise ProfileSourceError(server, f"an answer has no {name}, expected one of MLflow")
    return found


def write_tags(api: WritableJsonApi, identity: str, tags: Mapping[str, str]) -> None:
    """Set tags of a run in one request; those of other names stay, and a repeat changes nothing.

    Raises ProfileSourceError when there is no such run, or the server refuses the tags; PortUnavailableError.
    """
    named = [{"key": name, "value": value} for name, value in tags.items()]
    api.post("runs/log-batch", {"run_id": identity, "tags": named})
