"""What XID errors of NVIDIA's driver say of a GPU.

Source: NVIDIA, "XID Errors" (deployment and management guide), and its catalogue of codes. Only codes that the
vendor ascribes to hardware, its firmware or its links are faults of the GPU. Others are usually of the program that
ran on it, and are said without a finding.
"""

from dataclasses import dataclass
from typing import Literal

Remedy = Literal["replace", "restart"]


@dataclass(frozen=True, slots=True)
class XidFault:
    """A code that is of hardware: what it means, and whether the node must be replaced or the GPU restarted."""

    meaning: str
    remedy: Remedy


XID_FAULTS = {
    48: XidFault("a double-bit ECC error", "replace"),
    54: XidFault("auxiliary power is not connected", "replace"),
    62: XidFault("the GPU's microcontroller halted", "replace"),
    64: XidFault("a faulty memory row could not be remapped", "replace"),
    74: XidFault("an NVLink error", "replace"),
    79: XidFault("the GPU has fallen off the bus", "replace"),
    94: XidFault("a contained uncorrectable ECC error", "restart"),
    95: XidFault("an uncontained uncorrectable ECC error", "replace"),
    119: XidFault("the GPU's system processor timed out", "replace"),
    120: XidFault("the GPU's system processor failed", "replace"),
    140: XidFault("an unrecovered ECC error", "replace"),
    143: XidFault("the GPU could not be initialized", "replace"),
}

XID_OF_PROGRAMS = {
    13: "a fault in a kernel, such as an access out of bounds",
    31: "an access to memory that is not mapped",
    43: "a kernel that was stopped",
    45: "a process that was ended",
}
"""Codes of the program, for which no GPU is to blame; more than these are not named."""
