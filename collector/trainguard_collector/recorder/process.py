"""Which of the job's training processes this one is, and where its recordings go: the node's folder."""

import os
from collections.abc import Mapping
from typing import NamedTuple, Optional

from trainguard_collector.names import RANKS, identify
from trainguard_collector.recorder.harmless import module
from trainguard_collector.session import note_ignored, running_settings, start
from trainguard_collector.settings import Settings, read_settings

_SIZES = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")


class Rank(NamedTuple):
    """A process's number, and how many there are."""

    rank: int
    world: int

    @property
    def process(self) -> str:
        """The name of its timeline: its rank, or its process id where it is alone."""
        return f"rank{self.rank}" if self.world > 1 else str(os.getpid())


def find_rank(environment: Mapping[str, str]) -> Rank:
    """Return the rank, from ``torch.distributed`` where it is initialized, else from the launcher's variables."""
    torch = module("torch")
    distributed = getattr(torch, "distributed", None)
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return Rank(distributed.get_rank(), distributed.get_world_size())
    rank = next((environment[name] for name in RANKS if environment.get(name, "").isdecimal()), "")
    world = next((environment[name] for name in _SIZES if environment.get(name, "").isdecimal()), "")
    if (
        not world
        and environment.get("SLURM_NTASKS", "").isdecimal()
        and environment.get("SLURM_PROCID", "").isdecimal()
    ):
        rank, world = environment["SLURM_PROCID"], environment["SLURM_NTASKS"]
    found = Rank(int(rank or 0), max(int(world or 1), 1))
    return found if found.rank < found.world else Rank(0, 1)


def recording_settings(output: Optional[str], job: Optional[str], *, with_sampler: bool) -> Optional[Settings]:
    """Return the settings under which this process records; None where there is no output.

    The node's first process starts the sampler if none runs. What a running one was given goes before all else: nothing
    else would be sent.
    """
    if with_sampler:
        start(output, job=job)
    given = running_settings(os.environ)
    if given is not None:
        if not with_sampler:
            note_ignored(given, output, None, job)
        return given
    environment = {**os.environ, "TRAINGUARD_JOB": job} if job else dict(os.environ)
    return read_settings(environment, identify(environment), output=output)
