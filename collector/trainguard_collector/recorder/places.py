"""Where a process's recordings go: the node's folder, through which the sampler gets them."""

import os
from typing import Optional

from trainguard_collector.names import identify, launched_by
from trainguard_collector.session import note_ignored, running_settings, start
from trainguard_collector.settings import Settings, read_settings


def recording_settings(output: Optional[str], job: Optional[str], *, with_sampler: bool) -> Optional[Settings]:
    """Return the settings under which this process records; None where there is no output.

    The sampler of this node is started if it does not run and this is the node's first process. Where one runs, what it
    was given goes before arguments and before what this process finds out by itself: nothing else would be sent.
    """
    if with_sampler:
        start(output, job=job)
    given = running_settings(os.environ)
    if given is not None:
        if not with_sampler:
            note_ignored(given, output, None, job)
        return given
    environment = {**os.environ, "TRAINGUARD_JOB": job} if job else dict(os.environ)
    return read_settings(environment, identify(environment, launcher=launched_by(environment)), output=output)
