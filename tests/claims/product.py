"""The product as a user runs it: over a job's folder, or over what one node of it wrote."""

import json
import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

import msgspec

import trainguard
from trainguard.kernels.columns import Trace
from trainguard.kernels.comparison.compare import compared
from trainguard.kernels.document import KernelProfiles
from trainguard.kernels.profile import rank_profile
from trainguard.local.traces import open_traces

_OF_A_NODE = re.compile(r"\d+\.(?P<system>.+)\.json|\d+_[^-]+-(?P<framework>.+)_pythontimeline\.json")


def report_of(folder: Path, **how: Any) -> dict[str, Any]:
    """Return the ``report.json`` of a job's folder."""
    return trainguard.analyze(folder, time_lines=False, **how).to_dict()


def statuses_alone(folder: Path, node: str) -> dict[str, str]:
    """Return the status of each rule over a job of which only one node's files are there."""
    with tempfile.TemporaryDirectory(prefix="claims-") as place:
        alone = Path(place, folder.name)
        shutil.copytree(folder, alone, copy_function=os.link if _same_disk(folder, place) else shutil.copy2)
        for file in alone.rglob("*.json"):
            match = _OF_A_NODE.fullmatch(file.name)
            if match is not None and node not in {match["system"], match["framework"]}:
                file.unlink()
        about = alone / "job.json"
        if about.exists():
            told = json.loads(about.read_text("utf-8"))
            about.unlink()  # a link: what it names is not to change
            about.write_text(json.dumps({**told, "instance_count": 1}), "utf-8")
        return {entry["rule"]: entry["status"] for entry in report_of(alone)["rules"]}


def comparison_of(folders: tuple[Path, Path]) -> tuple[dict[str, Any], list[str]]:
    """Return what the comparison says about the first traces of two jobs, and the traces' names."""
    found = []
    for folder in folders:
        place = open_traces(str(folder / "kernel-traces"))
        trace = place.read(place.names[0])
        assert isinstance(trace, Trace)
        rank = msgspec.structs.replace(rank_profile(trace), rank=0)
        found.append(KernelProfiles(source=str(folder), ranks=[rank], unread={}))
    said = json.loads(msgspec.json.encode(compared(*found)))["ranks"][0]
    return said, [profile.ranks[0].trace for profile in found]


def _same_disk(folder: Path, place: str) -> bool:
    return folder.stat().st_dev == Path(place).stat().st_dev
