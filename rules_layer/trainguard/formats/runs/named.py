"""What the setting ``source`` of a job names: a service, and the job's data in it.

``prometheus https://host:9090 namespace=ml pod=~train-.*``, ``mlflow https://host run=ID``, ``logs /aws/batch/job
metric=loss:Loss=([0-9.]+)``. A tag of SageMaker holds no brackets: an expression stands in ``job.json``.
"""

import re
from dataclasses import dataclass
from typing import Literal

Kind = Literal["prometheus", "mlflow", "logs"]

EXPECTED = (
    "prometheus with labels such as pod=train-0, mlflow with run=ID, or logs; the service's address may follow "
    "the first word"
)
LONGEST = 1_024
SHORTEST_STEP_S, DEFAULT_STEP_S, LONGEST_STEP_S = 1.0, 15.0, 60.0

_KINDS: tuple[Kind, ...] = ("prometheus", "mlflow", "logs")
_WORD = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]{0,127})(?P<operator>=~|!~|!=|=)(?P<value>[^\x00-\x1f]{1,512})")
_SERVER = re.compile(r"(https?://|arn:aws[a-z-]*:|/)[^\s\"'<>\\{}|^`]{1,512}")
_RUN = re.compile(r"[A-Za-z0-9_-]{1,64}")
# Also an attribute of OpenTelemetry.
NODE_LABEL = re.compile(r"[A-Za-z_@][A-Za-z0-9_.@/-]{0,127}")

_STEP = re.compile(r"(\d{1,3}(?:\.\d{1,3})?)s?")
_METRIC = re.compile(r"(?P<name>[A-Za-z0-9_.-][A-Za-z0-9_./-]{0,127}):(?P<pattern>.{1,400})")
MOST_METRICS = 40
_STREAM = re.compile(r"[^:*\x00-\x1f]{1,512}")


@dataclass(frozen=True, slots=True)
class NamedSource:
    """Where a job's data are to be read.

    ``server`` is a URL, an ARN or a log group, empty for the only one; ``matchers`` are those of PromQL. ``step_s`` is
    the distance of samples, seconds; ``node_label`` and ``stream`` (a prefix) are empty for the known ones. ``metrics``
    are names of scalars, and regular expressions with one group.
    """

    kind: Kind
    server: str = ""
    matchers: str = ""
    step_s: float = DEFAULT_STEP_S
    node_label: str = ""
    run: str = ""
    stream: str = ""
    metrics: tuple[tuple[str, str], ...] = ()

    @property
    def gives_all(self) -> bool:
        return self.kind == "mlflow"


def named_source(text: str) -> NamedSource | None:
    kind, *rest = text.split() or [""]
    found = next((each for each in _KINDS if each == kind), None)
    if found is None or len(text) > LONGEST:
        return None
    server = rest.pop(0) if rest and _SERVER.fullmatch(rest[0]) else ""
    if server and (found == "logs") != server.startswith("/"):
        return None
    words = [_WORD.fullmatch(word) for word in rest]
    read = [(word["name"], word["operator"], word["value"]) for word in words if word is not None]
    if len(read) < len(words):
        return None
    return _READERS[found](server, read)


def _prometheus(server: str, words: list[tuple[str, str, str]]) -> NamedSource | None:
    step_s, node_label = DEFAULT_STEP_S, ""
    matchers = []
    for name, operator, value in words:
        if name == "step":
            match = _STEP.fullmatch(value)
            if match is None or operator != "=":
                return None
            step_s = float(match[1])
        elif name == "node_label":
            if NODE_LABEL.fullmatch(value) is None or operator != "=":
                return None
            node_label = value
        else:
            quoted = value.replace("\\", "\\\\").replace('"', '\\"')
            matchers.append(f'{name}{operator}"{quoted}"')
    if not matchers or not SHORTEST_STEP_S <= step_s <= LONGEST_STEP_S:
        return None
    return NamedSource("prometheus", server, matchers=",".join(matchers), step_s=step_s, node_label=node_label)


def _mlflow(server: str, words: list[tuple[str, str, str]]) -> NamedSource | None:
    if len(words) != 1 or words[0][:2] != ("run", "=") or not _RUN.fullmatch(words[0][2]):
        return None
    return NamedSource("mlflow", server, run=words[0][2])


def _logs(server: str, words: list[tuple[str, str, str]]) -> NamedSource | None:
    if not words:
        return NamedSource("logs", server)
    streams = [value for name, _, value in words if name == "stream"]
    found = [_METRIC.fullmatch(value) for name, _, value in words if name == "metric"]
    metrics = [(each["name"], each["pattern"]) for each in found if each is not None]
    is_known = len(streams) + len(metrics) == len(words) and all(operator == "=" for _, operator, _ in words)
    if not is_known or len(streams) > 1 or not all(map(_STREAM.fullmatch, streams)) or len(metrics) > MOST_METRICS:
        return None
    return NamedSource("logs", server, stream="".join(streams), metrics=tuple(metrics))


_READERS = {"prometheus": _prometheus, "mlflow": _mlflow, "logs": _logs}
