"""How much memory the product's modules hold: all that can be reached from them, but not through other libraries.

Where memory was allocated says nothing about who holds it: moto keeps keys and bodies that TrainGuard made, and a
memo of TrainGuard may hold what botocore read.
"""

import gc
import sys
from collections import deque
from types import BuiltinFunctionType, FunctionType, ModuleType

_OWN = "trainguard"
# Packages whose objects are walked through; what a client of AWS or moto holds is theirs.
_WALKED = frozenset(
    {_OWN, "aws_lambda_powertools", "builtins", "collections", "functools", "msgspec", "numpy", "types"}
)


def loaded() -> list[ModuleType]:
    """Return the loaded modules of TrainGuard."""
    return [module for name, module in list(sys.modules.items()) if name.partition(".")[0] == _OWN]


def held_bytes(own: list[ModuleType]) -> int:
    """Return the bytes of all objects that modules hold."""
    gc.collect()
    waiting = deque[object](vars(module) for module in own)
    known = {id(each) for each in (*waiting, waiting, own, sys.modules, *sys.modules.values())}
    held = 0
    while waiting:
        each = waiting.popleft()
        held += sys.getsizeof(each)
        # A dictionary of texts says nothing of its keys to the collector.
        for part in [*gc.get_referents(each), *(each if isinstance(each, dict) else ())]:
            if id(part) not in known and _is_walked(part, own):
                known.add(id(part))
                waiting.append(part)
    return held


def _is_walked(part: object, own: list[ModuleType]) -> bool:
    if isinstance(part, type | FunctionType | BuiltinFunctionType):
        name = part.__module__ or ""
        return name.partition(".")[0] == _OWN or any(name == module.__name__ for module in own)
    kind = type(part).__module__
    return kind.partition(".")[0] in _WALKED or any(kind == module.__name__ for module in own)
