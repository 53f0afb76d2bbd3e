"""What is fuzzed of other services' runs, and of the launch code's settings."""

import io
import json
import lzma
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.fuzz.target import Target, documents, of_answer, of_document
from trainguard.config.debugger_hook import CollectionConfig, DebuggerHookConfig
from trainguard.config.job_rules import ConfiguredRule, container_code
from trainguard.config.profiler_config import ProfilerConfig
from trainguard.config.rule_configs import CONFIGS
from trainguard.config.tensor_rules import TENSOR_CONFIGS
from trainguard.formats.runs.managed import event_file, job_file, system_files
from trainguard.formats.runs.mlflow.server import read_server_run
from trainguard.formats.runs.mlflow.stores import is_run_folder, read_run_folder
from trainguard.formats.runs.run import SourceRun
from trainguard.formats.runs.wandb.run_file import Records
from trainguard.rules.parameters import resolve_parameters

DATA = Path(__file__).parents[1] / "data"


def delivered(run: SourceRun) -> object:
    """Return the files that are made of a run."""
    return system_files(run), event_file(run.scalars), job_file(run, "name")


def unpacked(*names: str) -> list[bytes]:
    """Return recorded data."""
    return [lzma.decompress((DATA / name).read_bytes()) for name in names]


class _Server:
    """A tracking server whose answers are those of a document, by path or metric."""

    place = "https://mlflow"

    def __init__(self, replies: Any) -> None:
        self._replies = replies if isinstance(replies, dict) else {"runs/get": replies}

    def get(self, path: str, query: Mapping[str, str]) -> Any:
        """Return an answer; a metric's pages are a list."""
        answer = self._replies.get(query.get("metric_key", path), {})
        return answer[0] if isinstance(answer, list) and answer else answer


def _folder(given: Any) -> object:
    """Read a run's folder, whose files are those of a document."""
    files = given if isinstance(given, dict) else {"meta.yaml": given}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "metrics").mkdir()
        for path in ("meta.yaml", "metrics/loss"):
            (folder / path).write_text(str(files.get(path)), encoding="utf-8", errors="surrogatepass")
        return delivered(read_run_folder(folder)) if is_run_folder(folder) else None


def _run_folder() -> list[bytes]:
    (packed,) = unpacked("mlflow/run-folder.json.xz")
    files = json.loads(packed)
    metric = next(name for name in files if name.startswith("metrics/"))
    return [json.dumps({"meta.yaml": files["meta.yaml"], "metrics/loss": files[metric]}).encode()]


def _settings(kinds: Mapping[str, Callable[..., Any]]) -> Callable[[Any], object]:
    """Return what makes a rule's settings of a document, as launch code calls it."""

    def read(given: Any) -> object:
        chosen = given if isinstance(given, dict) else {}
        kind, parameters = kinds.get(str(chosen.get("rule"))), chosen.get("parameters")
        if kind is None or not isinstance(parameters, dict):
            return None
        return kind(**parameters).settings

    return read


def _launch(given: Any) -> object:
    chosen = given if isinstance(given, dict) else {}
    listed = chosen.get("collections")
    pairs = [each for each in listed if isinstance(each, list) and len(each) == 2] if isinstance(listed, list) else []
    configs = [CollectionConfig(*each) for each in pairs]
    hook = DebuggerHookConfig(chosen.get("output"), None, chosen.get("hook"), configs)
    profile = ProfilerConfig(chosen.get("output"), chosen.get("interval"))
    code = container_code("Rule", chosen.get("source"), chosen.get("rule"))
    rule = ConfiguredRule(name="r", image_uri="i", rule_parameters=code)
    return hook.to_request_dict(), profile.to_request_dict(), rule.request(dict.fromkeys(code, ""))


def _tags(given: Any) -> object:
    """Read settings as tags say them, each a text."""
    return resolve_parameters({str(name): str(value) for name, value in dict(given).items()})


_LAUNCH = {
    "output": "s3://bucket/prefix",
    "interval": 500,
    "hook": {"save_interval": 10},
    "collections": [["losses", {"include_regex": "loss", "save_interval": "5"}]],
    "source": "s3://bucket/rule.py",
    "rule": "MyRule",
}
_REPORT = {"LowGPUUtilization_window": 20, "opt_out_telemetry": False}

SOURCE_TARGETS = (
    Target(
        "MLflow server",
        lambda: unpacked("mlflow/replies.json.xz"),
        of_answer(lambda replies: delivered(read_server_run(_Server(replies), "https://mlflow", "run"))),
    ),
    Target("MLflow folder", _run_folder, of_document(_folder)),
    Target(
        "W&B log file",
        lambda: unpacked("wandb/run-recorded.wandb.xz"),
        lambda body: [len(record) for record in Records("run.wandb", io.BytesIO(body))],
    ),
    Target(
        "settings of rules",
        documents(
            {"rule": "LowGPUUtilization", "parameters": {"window": 20, "patience": "20", "threshold_p95": 70}},
            {"rule": "ProfilerReport", "parameters": _REPORT},
        ),
        of_document(_settings(CONFIGS)),
    ),
    Target(
        "settings of tensor rules",
        documents({"rule": "VanishingGradient", "parameters": {"threshold": 0.001}}),
        of_document(_settings(TENSOR_CONFIGS)),
    ),
    Target("launch configuration", documents(_LAUNCH), of_document(_launch)),
    Target(
        "settings in tags",
        documents({"LowGPUUtilization_window": "20", "StepOutlier_stddev": "3"}),
        of_document(lambda given: _tags(given) if isinstance(given, dict) else None),
    ),
)
