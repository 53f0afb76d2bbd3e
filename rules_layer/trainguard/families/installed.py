"""The families of rules that this version has."""

from trainguard.engine.family import Families
from trainguard.families.profiler.family import PROFILER

FAMILIES = Families(PROFILER)
