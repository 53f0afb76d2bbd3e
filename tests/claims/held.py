"""How far what is said is from the goal: nothing untrue, and nothing that nobody can check."""

# So many claims of a source do not hold, and no more may.
UNTRUE = {"labelled": 0, "real": 0, "recordings": 0, "random": 0, "steps": 0, "training": 0, "tensors": 0, "kernels": 0}

# So many claims of a source nothing here can check, and no more may be.
UNKNOWN = {
    "labelled": 0,
    "real": 0,
    "recordings": 0,
    "random": 0,
    "steps": 0,
    "training": 0,
    "tensors": 0,
    "kernels": 0,
}
