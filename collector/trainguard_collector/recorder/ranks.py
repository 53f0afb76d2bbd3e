"""Which of the job's training processes this one is."""

import os
from collections.abc import Mapping
from typing import NamedTuple

from trainguard_collector.recorder.harmless import module

_RANKS = ("RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK")
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
    rank = next((environment[name] for name in _RANKS if environment.get(name, "").isdecimal()), "")
    world = next((environment[name] for name in _SIZES if environment.get(name, "").isdecimal()), "")
    if (
        not world
        and environment.get("SLURM_NTASKS", "").isdecimal()
        and environment.get("SLURM_PROCID", "").isdecimal()
    ):
        rank, world = environment["SLURM_PROCID"], environment["SLURM_NTASKS"]
    found = Rank(int(rank or 0), max(int(world or 1), 1))
    return found if found.rank < found.world else Rank(0, 1)
