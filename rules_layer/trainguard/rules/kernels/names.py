"""Names of the rules over kernel profiles, in the order of their page, for who knows settings and imports no rule."""

FAMILY, TITLE = "kernels", "Kernel profiles"
_RULES = (
    "GpuBusyLow",
    "GpuGap",
    "LoaderBound",
    "LaunchBound",
    "SmallKernelStorm",
    "SyncStall",
    "ExposedCommunication",
    "MemcpyBound",
    "PageableCopy",
    "WrongParallel",
    "TensorCoresIdle",
    "LowPrecisionUnused",
    "SmUnderfilled",
    "TraceStepOutlier",
    "GpuMemoryFull",
    "QueueFull",
    "TraceQuality",
    "LateRank",
    "SlowRank",
)
NAMES: tuple[str, ...] = tuple(f"{FAMILY}/{rule}" for rule in _RULES)
