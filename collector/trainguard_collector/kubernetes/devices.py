"""Which GPUs the kubelet has given to which pod: its API of pod resources, version 1.

``k8s.io/kubelet/pkg/apis/podresources/v1/api.proto`` has the numbers of the fields.
"""

import re
from collections.abc import Iterator
from typing import Optional, Union

SOCKET = "/var/lib/kubelet/pod-resources/kubelet.sock"
_METHOD = "/v1.PodResourcesLister/List"
_TIMEOUT_S = 10.0
_UUID = re.compile(r"((?:GPU|MIG)-[A-Za-z0-9/-]+)(?:::\d+)?")
# What the driver of dynamic resources calls the GPU of that number.
_DYNAMIC = re.compile(r"gpu-(\d{1,3})")

Allocated = dict[tuple[str, str], list[str]]


def allocated_gpus(socket: str = SOCKET) -> Allocated:
    """Return UUIDs or numbers of NVIDIA GPUs by namespace and name of the pod; raises what gRPC raises."""
    import grpc  # an extra: it is in the image of the node's sampler alone

    with grpc.insecure_channel(f"unix:{socket}") as channel:
        call = channel.unary_unary(_METHOD, request_serializer=None, response_deserializer=None)
        return read_answer(call(b"", timeout=_TIMEOUT_S))


def read_answer(answer: bytes) -> Allocated:
    """Return the GPUs that an answer names; raises ValueError for bytes that are no answer."""
    found: Allocated = {}
    for pod in _messages(answer, 1):
        name, namespace = (_text(pod, number) for number in (1, 2))
        gpus: list[str] = []
        for container in _messages(pod, 3):
            for devices in _messages(container, 2):
                gpus += [match[1] for each in _messages(devices, 2) if (match := _UUID.fullmatch(_decoded(each)))]
            for dynamic in _messages(container, 5):
                named = [_text(claimed, 4) for claimed in _messages(dynamic, 4)]
                gpus += [match[1] for each in named if (match := _DYNAMIC.fullmatch(each))]
        found[namespace, name] = sorted(set(gpus))
    return found


def _messages(message: bytes, number: int) -> "list[bytes]":
    return [value for found, value in _fields(message) if found == number and isinstance(value, bytes)]


def _text(message: bytes, number: int) -> str:
    return _decoded(next(iter(_messages(message, number)), b""))


def _decoded(value: bytes) -> str:
    return value.decode("utf-8", "replace")


_FIXED = {1: 8, 5: 4}
_LONGEST_VARINT = 10


def _fields(message: bytes) -> "Iterator[tuple[int, Union[int, bytes]]]":
    """Yield number and value of each field of a protocol buffer."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        kind = tag & 7
        if kind == 0:
            value, at = _varint(message, at)
            yield tag >> 3, value
            continue
        length: Optional[int] = _FIXED.get(kind)
        if kind == 2:
            length, at = _varint(message, at)
        if length is None or at + length > len(message):
            raise ValueError(f"field {tag >> 3} of kind {kind} at byte {at} of {len(message)}")
        yield tag >> 3, message[at : at + length]
        at += length


def _varint(message: bytes, at: int) -> "tuple[int, int]":
    value = 0
    for shift, byte in enumerate(message[at : at + _LONGEST_VARINT]):
        value |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:
            return value, at + shift + 1
    raise ValueError(f"a number that does not end, at byte {at} of {len(message)}")
