"""Framework objects of a node as they are listed, read."""

from trainguard.families.profiler.listing import ProfileListing
from trainguard.telemetry.framework import FrameworkEvents, read_framework_object, read_tf_trace
from trainguard.telemetry.keys import FrameworkKey


def read_framework(listing: ProfileListing, key: str, parsed: FrameworkKey) -> FrameworkEvents:
    """Read a timeline, or the TensorFlow trace that the metadata ``key`` describes.

    Raises
    ------
    TelemetryFormatError
        When nothing can be read of it, or there is no trace to the metadata.
    ObjectMissingError
        When the object is gone.
    PortUnavailableError
        When the store did not answer.
    """
    process = f"{parsed.node}-{parsed.process}"
    if parsed.start_us is not None:
        trace = listing.trace_of(key, parsed)
        body = listing.get(trace)
        return read_tf_trace(trace, body, process=process, start_us=parsed.start_us, end_us=parsed.end_us)
    return read_framework_object(key, listing.get(key), process=process, end_us=parsed.end_us, kind=parsed.kind)
