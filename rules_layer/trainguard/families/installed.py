"""The families of rules that this version has."""

from trainguard.engine.family import Families
from trainguard.families.kernels.family import KERNEL_PROFILES
from trainguard.families.profiler.family import PROFILER
from trainguard.families.training.family import TRAINING_HEALTH

FAMILIES = Families(PROFILER, TRAINING_HEALTH, KERNEL_PROFILES)
