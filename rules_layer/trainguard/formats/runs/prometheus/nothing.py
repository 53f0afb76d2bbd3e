"""What to say where no series of a device was found: what was asked for, and what is there instead."""

from trainguard.core.errors import PortUnavailableError, ProfileSourceError
from trainguard.formats.runs.prometheus.queries import Series, TimeRange, range_query
from trainguard.formats.runs.prometheus.vendors import VENDORS
from trainguard.formats.runs.run import JsonApi

_SHOWN = 5
_ACCELERATORS = "(?i).*(dcgm|gpu|neuron|tpu|habana|xpu|npu|accelerator).*"


def nothing_found(api: JsonApi, matchers: str, over: TimeRange) -> str:
    """Say what was asked for and has no series, and what is there instead; asks at three times of the job."""
    first = [vendor.metrics[0].name for vendor in VENDORS]
    asked = ", ".join(f"{vendor.metrics[0].name} and {len(vendor.metrics) - 1} more" for vendor in VENDORS)
    of = f"with the matchers {matchers}" if matchers else "without matchers"
    said = (
        f"has no series of GPUs or NeuronCores from {over.start:.0f} to {over.end:.0f}, {of}: it was asked for {asked}"
    )
    few = TimeRange(over.start, over.end, max((over.end - over.start) / 2.0, 1.0))
    rest = f",{matchers}" if matchers else ""
    names = _tried(api, f'count by (__name__) ({{__name__=~"{_ACCELERATORS}"{rest}}})', few)
    others = sorted({labels["__name__"] for labels, _ in names or () if labels.get("__name__")})
    if others:
        more = f" and {len(others) - _SHOWN} more" if len(others) > _SHOWN else ""
        return f"{said}; there are {', '.join(others[:_SHOWN])}{more}, which are not read"
    if not matchers:
        return said
    for name in first:
        found = _tried(api, f"topk(1, {name})", few)
        if found is None:
            return said
        if found:
            labels = ", ".join(f'{key}="{value}"' for key, value in sorted(found[0][0].items()) if key != "__name__")
            return f"{said}; without them there is {name}, for example with {labels:.600}"
    return f"{said}; {', '.join(first)} have no series without them either"


def _tried(api: JsonApi, expression: str, over: TimeRange) -> list[Series] | None:
    """Return series; None where the service refuses: a hint is worth no error of its own."""
    try:
        return [each for each in range_query(api, expression, over) if each[1]]
    except (ProfileSourceError, PortUnavailableError):
        return None
