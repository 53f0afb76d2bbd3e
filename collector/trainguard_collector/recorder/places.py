"""Where a process's recordings go: the node's folder, through which the sampler gets them."""

import json
import os
import socket
from collections.abc import Mapping
from typing import Optional

from trainguard_collector.names import identify, launched_by
from trainguard_collector.session import start
from trainguard_collector.settings import Settings, read_settings
from trainguard_collector.spawn import NODE_SETTINGS


def recording_settings(output: Optional[str], job: Optional[str], *, with_sampler: bool) -> Optional[Settings]:
    """Return the settings under which this process records; None where there is no output.

    The sampler of this node is started if it does not run and this is the node's first process. What it was given goes
    before what this process finds out by itself: all of them write one job.
    """
    if with_sampler:
        start(output, job=job)
    given = _given(os.environ)
    if given is not None and output in (None, given.output) and job in (None, given.identity.job):
        return given
    environment = {**os.environ, "TRAINGUARD_JOB": job} if job else dict(os.environ)
    return read_settings(environment, identify(environment, launcher=launched_by(environment)), output=output)


def _given(environment: Mapping[str, str]) -> Optional[Settings]:
    """Return the settings of the sampler that observes this process."""
    text = environment.get(NODE_SETTINGS)
    if not text:
        return None
    given = json.loads(text)
    # MPI may carry a variable from one node to another.
    return Settings.from_json(given["settings"]) if given["host"] == socket.gethostname() else None
