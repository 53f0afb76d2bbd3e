"""Runs that services keep: ``mlflow+https://host#RUN`` and ``prometheus+https://host?start=…#MATCHERS``.

Credentials come from the environment, by the names that the tools' own clients use.
"""

import os
import re
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from urllib.parse import parse_qsl

from botocore.session import Session

from trainguard.aws.source_services import SERVER_ARN, HttpJson, basic, bearer, host_of, mlflow_api, prometheus_api
from trainguard.core.errors import ProfileSourceError
from trainguard.formats.runs.mlflow.server import read_server_run, search_runs
from trainguard.formats.runs.named import NODE_LABEL
from trainguard.formats.runs.prometheus.job import nothing_found, read_job
from trainguard.formats.runs.prometheus.queries import QueryRange
from trainguard.formats.runs.run import SourceRun
from trainguard.local.sources import SERVICES, RecordedRun

_MLFLOW, _PROMETHEUS = SERVICES
_STEP_S, _SHORTEST_STEP_S, _LONGEST_S = 15.0, 1.0, 92 * 24 * 3_600.0
_HOW = 'expected for example prometheus+https://host:9090?start=2026-01-31T08:00:00Z&end=2026-01-31T12:00:00Z#pod=~"bert-.*"'


_EXPERIMENT = re.compile(r"/?experiments/(?P<experiment>\w+)(?:/runs)?/?")


def service_runs(
    place: str, environment: Mapping[str, str] | None = None, session: Session | None = None
) -> list[RecordedRun]:
    """Return the runs of a place: of a server of MLflow without ``#RUN`` its newest, of its or one experiment's.

    Raises ProfileSourceError when the place cannot be used, or has no run; PortUnavailableError.
    """
    address, _, named = place.partition("#")
    experiment = _EXPERIMENT.fullmatch(named)
    if not place.startswith(_MLFLOW) or (named and experiment is None):
        return [service_run(place, environment, session)]
    api, page, _ = mlflow_service(address, environment, session)
    return [
        RecordedRun(f"{address}#{run}", partial(read_server_run, api, page, run), run=run, title=title)
        for run, title in search_runs(api, page or address, "" if experiment is None else experiment["experiment"])
    ]


def service_run(
    place: str, environment: Mapping[str, str] | None = None, session: Session | None = None
) -> RecordedRun:
    """Return the one run of a place; it is asked for when it is read.

    A managed server of MLflow is ``mlflow+arn:aws:sagemaker:…:mlflow-tracking-server/name#RUN``; ``session`` signs
    requests to AWS. Raises ProfileSourceError when the place cannot be used.
    """
    known = os.environ if environment is None else environment
    if place.startswith(_MLFLOW):
        api, page, run = mlflow_service(place, known, session)
        if not run:
            raise ProfileSourceError(place, f"names no run, expected {place.partition('#')[0]}#RUN")
        return RecordedRun(place, partial(read_server_run, api, page, run), run=run)
    return _prometheus(place, known, session)


def mlflow_service(
    place: str, environment: Mapping[str, str] | None = None, session: Session | None = None
) -> tuple[HttpJson, str, str]:
    """Return the server of a place of MLflow, where people see it, and the identity of a run, or nothing."""
    environment = os.environ if environment is None else environment
    if not place.startswith(_MLFLOW):
        raise ProfileSourceError(place, "is no server of MLflow, expected for example mlflow+https://host#RUN")
    server, _, run = place.removeprefix(_MLFLOW).partition("#")
    identity = run.rstrip("/").rpartition("/")[2]
    api = mlflow_api(place, server, lambda _: _mlflow_headers(environment), session)
    return api, "" if SERVER_ARN.fullmatch(server) else server.rstrip("/"), identity


def _mlflow_headers(environment: Mapping[str, str]) -> Mapping[str, str]:
    if token := environment.get("MLFLOW_TRACKING_TOKEN"):
        return bearer(token)
    user, password = environment.get("MLFLOW_TRACKING_USERNAME"), environment.get("MLFLOW_TRACKING_PASSWORD")
    return basic(user, password) if user and password else {}


def _prometheus(place: str, environment: Mapping[str, str], session: Session | None) -> RecordedRun:
    address, _, matchers = place.removeprefix(_PROMETHEUS).partition("#")
    server, _, asked = address.partition("?")
    options = dict(parse_qsl(asked))
    if unknown := sorted(options.keys() - {"start", "end", "step", "name", "node_label"}):
        expected = "expected start, end, step, name or node_label"
        raise ProfileSourceError(place, f"has an option {unknown[0]!r}, {expected}; {_HOW}")
    node_label = options.get("node_label", "")
    if node_label and NODE_LABEL.fullmatch(node_label) is None:
        raise ProfileSourceError(place, f"node_label is {node_label!r:.80}, expected the name of a label; {_HOW}")
    token = environment.get("PROMETHEUS_TOKEN")
    api = prometheus_api(place, server, lambda _: bearer(token) if token else {}, session)
    name = options.get("name") or host_of(place, server)
    over = _range(place, options)

    def read() -> SourceRun:
        run = read_job(api, name, matchers, over, node_label)
        if not run.snapshots:
            run.nothing = nothing_found(api, matchers, over)
        return run

    return RecordedRun(place, read, run=name)


def _range(place: str, options: Mapping[str, str]) -> QueryRange:
    start = _time(place, options, "start")
    end = _time(place, options, "end") if "end" in options else time.time()
    try:
        step = float(options.get("step", _STEP_S))
    except ValueError as fault:
        raise ProfileSourceError(place, f"step is {options['step']!r}, expected seconds; {_HOW}") from fault
    if not start < end <= start + _LONGEST_S:
        raise ProfileSourceError(place, f"start is {start:.0f} and end {end:.0f}, expected up to 92 days; {_HOW}")
    if not step >= _SHORTEST_STEP_S:
        raise ProfileSourceError(place, f"step is {step:g}, expected at least 1 second; {_HOW}")
    return QueryRange(start, end, step)


def _time(place: str, options: Mapping[str, str], name: str) -> float:
    text = options.get(name, "")
    try:
        return float(text)
    except ValueError:
        pass
    try:
        at = datetime.fromisoformat(text)
    except ValueError as fault:
        raise ProfileSourceError(place, f"{name} is {text!r}, expected a time; {_HOW}") from fault
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
