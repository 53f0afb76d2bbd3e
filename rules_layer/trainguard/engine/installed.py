"""The families of rules that this version has."""

from trainguard.engine.family import Families
from trainguard.engine.kernels.session import KERNEL_PROFILES
from trainguard.engine.profiler.family import PROFILER
from trainguard.engine.training.family import TRAINING_HEALTH

FAMILIES = Families(PROFILER, TRAINING_HEALTH, KERNEL_PROFILES)
