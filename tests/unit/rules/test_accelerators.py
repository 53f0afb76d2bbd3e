"""The accelerator of an instance's type, and the command that lists it."""

import pytest

from trainguard.core.accelerators import AMD, NEURON, NVIDIA, STATE, Accelerator, accelerator_of, listing_tools


@pytest.mark.parametrize(
    ("instance_type", "accelerator"),
    [
        ("ml.p4d.24xlarge", NVIDIA),
        ("p5.48xlarge", NVIDIA),
        ("ml.g5.xlarge", NVIDIA),
        ("ml.g4dn.xlarge", NVIDIA),
        ("g4ad.xlarge", AMD),
        ("ml.trn1.32xlarge", NEURON),
        ("trn2.48xlarge", NEURON),
        ("inf2.xlarge", NEURON),
        ("ml.m5.large", None),
        ("local", None),
        (None, None),
    ],
)
def test_accelerator_is_that_of_the_family(instance_type: str | None, accelerator: Accelerator | None) -> None:
    assert accelerator_of(instance_type) == accelerator
    assert (accelerator or NVIDIA).tool in listing_tools(instance_type)


@pytest.mark.parametrize("text", [listing_tools(None), STATE])
def test_text_for_any_accelerator_names_every_tool(text: str) -> None:
    assert all(tool in text for tool in ("nvidia-smi", "amd-smi", "neuron-", "tpu-info"))
