"""The digests of a trace: a brief one for all ranks together, and a full one with its timeline."""

from typing import TypeVar

import msgspec

from trainguard.errors import TelemetryFormatError
from trainguard.kernels.captures.timeline_form import StoredTimeline
from trainguard.kernels.document import RankProfile

FORMAT = 1
MOST_BRIEF_BYTES = 8 * 1024 * 1024
MOST_FULL_BYTES = 32 * 1024 * 1024
Digest = TypeVar("Digest")
_UNREADABLE = (msgspec.DecodeError, UnicodeError, RecursionError)


class BriefDigest(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept of each trace; ``fault`` says why there is no ``profile``."""

    format: int = FORMAT
    profile: RankProfile | None = None
    fault: str = ""


class FullDigest(msgspec.Struct, frozen=True, kw_only=True):
    """What a page draws of a trace."""

    format: int = FORMAT
    profile: RankProfile
    timeline: StoredTimeline | None


# Built once, as the types of a decoder that several threads build at once may be half-built.
_BRIEF = msgspec.json.Decoder(BriefDigest)
_FULL = msgspec.json.Decoder(FullDigest)


def decode_brief(key: str, body: bytes) -> BriefDigest:
    """Read a brief digest back; raises TelemetryFormatError when it is none, or of another version of this code."""
    digest = _decoded(key, body, _BRIEF, MOST_BRIEF_BYTES)
    if digest.format != FORMAT:
        raise TelemetryFormatError(key, f"format {digest.format}, expected {FORMAT}")
    if digest.profile is None and not digest.fault:
        raise TelemetryFormatError(key, "neither profile nor fault, expected one of them")
    return digest


def decode_full(key: str, body: bytes) -> FullDigest:
    """Read a full digest back; raises TelemetryFormatError when it is none, or of another version of this code."""
    digest = _decoded(key, body, _FULL, MOST_FULL_BYTES)
    if digest.format != FORMAT:
        raise TelemetryFormatError(key, f"format {digest.format}, expected {FORMAT}")
    return digest


def _decoded(key: str, body: bytes, decoder: "msgspec.json.Decoder[Digest]", most: int) -> Digest:
    if len(body) > most:
        raise TelemetryFormatError(key, f"a digest of over {most:,} bytes, expected fewer")
    try:
        return decoder.decode(body)
    except _UNREADABLE as fault:
        raise TelemetryFormatError(key, f"{fault}, expected a digest of a trace") from fault
