"""Names of a model's tensors, as the managed hook gives them to models of torch."""

import re
from typing import Any

_WRAPPERS = re.compile(r"(?:^|(?<=\.))(?:_fsdp_wrapped_module|_orig_mod|_checkpoint_wrapped_module)\.")
_KNOWN_ACTIVATIONS = {"ReLU": "relu", "Tanh": "tanh", "Sigmoid": "sigmoid"}


def unwrapped(model: Any) -> Any:
    """Return the model within wrappers such as DistributedDataParallel and a compiled module."""
    for _ in range(8):
        inner = getattr(model, "_orig_mod", None)
        if inner is None and type(model).__name__ in {"DistributedDataParallel", "DataParallel", "DeepSpeedEngine"}:
            inner = getattr(model, "module", None)
        if inner is None and type(model).__name__ == "FullyShardedDataParallel":
            inner = getattr(model, "_fsdp_wrapped_module", None)
        if inner is None:
            return model
        model = inner
    return model


def clean(path: str) -> str:
    """Return a path of attributes without those of wrappers."""
    return _WRAPPERS.sub("", path)


def module_name(root: str, path: str, module: Any) -> str:
    """Return a module's name: its path, and for the root the model's name.

    The path of a ReLU, Tanh or Sigmoid module that does not say so gets a word that does: rules know them by it.
    """
    name = clean(path) or root
    kind = _KNOWN_ACTIVATIONS.get(type(module).__name__)
    return f"{name}.{kind}" if kind is not None and not name.lower().endswith(kind) else name


def class_name(model: Any) -> str:
    """Return the name of a model's class, as its author wrote it."""
    # FSDP2 derives a class of its own: FSDPResNet.
    name = type(model).__name__
    return name[4:] if name.startswith("FSDP") and hasattr(model, "set_requires_gradient_sync") else name
