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
    data = _mapping(fetched, "data", server, otherwise={})
    metrics = data.get("metrics", [])
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
    return run_of(described, _values(api, server, identity, keys[:_MOST_KEYS]), _params(data.get("params")))


def _params(given: Any) -> dict[str, object]:
    entries = [each for each in given if isinstance(each, dict)] if isinstance(given, list) else []
    return {each["key"]: each.get("value") for each in entries if isinstance(each.get("key"), str)}


MOST_RUNS = 1_000
_MOST_EXPERIMENTS = 1_000
_EXPERIMENTS_AT_ONCE = 100


def search_runs(api: WritableJsonApi, server: str, experiment: str = "") -> list[tuple[str, str]]:
    """Return identities and names of the newest runs, of all experiments or of one; 1,000 of them at most.

    Raises ProfileSourceError where there is none, or an answer is none of MLflow; PortUnavailableError.
    """
    experiments = [experiment] if experiment else _experiments(api, server)
    found: list[tuple[int, str, str]] = []
    for first in range(0, len(experiments), _EXPERIMENTS_AT_ONCE):
        asked = {"experiment_ids": experiments[first : first + _EXPERIMENTS_AT_ONCE], "max_results": MOST_RUNS}
        answer = api.post("runs/search", {**asked, "order_by": ["attributes.start_time DESC"]})
        for each in _entries(answer, "runs", server):
            info = each.get("info")
            if isinstance(info, dict) and isinstance(identity := info.get("run_id"), str):
                found.append((whole(info.get("start_time")) or 0, identity, str(info.get("run_name") or "")))
    if not found:
        where = f"experiment {experiment}" if experiment else f"{len(experiments):,} experiments"
        raise ProfileSourceError(server, f"has no run in {where}, expected runs that are not deleted")
    return [(identity, name) for _, identity, name in sorted(found, reverse=True)[:MOST_RUNS]]


def _experiments(api: WritableJsonApi, server: str) -> list[str]:
    answer = api.post("experiments/search", {"max_results": _MOST_EXPERIMENTS})
    found = [each.get("experiment_id") for each in _entries(answer, "experiments", server)]
    return [each for each in found if isinstance(each, str)]


def _entries(answer: Any, name: str, server: str) -> list[Mapping[str, Any]]:
    """Return the objects of a list, which an answer without any lacks."""
    found = answer.get(name, []) if isinstance(answer, dict) else None
    if not isinstance(found, list):
        raise ProfileSourceError(server, f"an answer has no list of {name}, expected one of MLflow")
    return [each for each in found if isinstance(each, dict)]


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
