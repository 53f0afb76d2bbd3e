"""What a fault looks like: the words in which one rule shows it and another rule names the reason for it.

A rule that names a reason lists the symptoms that it explains, never the rules that show them: so neither has to know
the other.
"""

from typing import NewType

Symptom = NewType("Symptom", str)

LOW_GPUS = Symptom("GPUs are not busy")
NO_REASON = "for no reason that the profile shows"
"""What is said of low GPUs that no other rule explains."""

TAKEN_GPU = Symptom("a GPU has held memory all along and never worked")
UNEVEN = Symptom("some GPUs do less than the others")
DATA_WAITS = Symptom("GPUs wait for batches")
SMALL_WORK = Symptom("the work leaves CPU, GPUs and GPU memory unused")
SLOW_STEPS = Symptom("some training steps are slow")
UNUSED_NODE = Symptom("never used")
"""No GPU of a node ever worked: a matter of the node's start and no matter of load, batches or balance."""

IDLE_NODE = Symptom("idle")
"""Every GPU of a node stopped working: no other rule says why a node hangs."""
