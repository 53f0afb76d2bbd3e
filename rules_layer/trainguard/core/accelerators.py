"""What the accelerators of an instance are called, and the tool on the machine that lists them.

Families of instances: AWS, "Accelerated computing" (https://aws.amazon.com/ec2/instance-types/).
"""

import re
from typing import NamedTuple


class Accelerator(NamedTuple):
    """``noun`` is what one is called, ``tool`` the command that lists those that a machine sees."""

    noun: str
    tool: str


NVIDIA = Accelerator("GPU", "nvidia-smi")
AMD = Accelerator("GPU", "amd-smi")
NEURON = Accelerator("Neuron device", "neuron-ls")
TPU = Accelerator("TPU", "tpu-info")

# Where nothing says whose an accelerator is: what shows its state and who uses it.
STATE = "nvidia-smi (AMD: amd-smi; Trainium: neuron-top; TPU: tpu-info)"
# Where its driver writes faults.
FAULTS = "dmesg (NVIDIA: Xid errors)"

_FAMILY = re.compile(r"(?:ml\.)?(?P<family>[a-z]+\d+[a-z-]*)\.")
_OTHERS = {"trn": NEURON, "inf": NEURON, "g4ad": AMD, "dl": Accelerator("Gaudi", "hl-smi")}


def accelerator_of(instance_type: str | None) -> Accelerator | None:
    """Return what an instance has, by its type: ``ml.trn1.32xlarge``; None of one that is not known."""
    match = None if instance_type is None else _FAMILY.match(instance_type)
    if match is None:
        return None
    others = (each for begins, each in _OTHERS.items() if match["family"].startswith(begins))
    found = next(others, None)
    return found or (NVIDIA if match["family"][0] in "pg" else None)


def listing_tools(instance_type: str | None) -> str:
    """Return the command that lists an instance's accelerators, of an unknown one those of all kinds."""
    known = accelerator_of(instance_type)
    if known is not None:
        return f"`{known.tool}`"
    return f"`{NVIDIA.tool}`; `{AMD.tool}` of AMD, `{NEURON.tool}` of Trainium, `{TPU.tool}` of TPUs"
