"""JSONata expressions of Step Functions, evaluated by the pure-Python `jsonata-python`.

Variables are bound as values, as on AWS, which is some ten times faster than LocalStack's Java virtual machine.
"""

import hashlib
import json
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final

from jsonata.jsonata import Jsonata
from jsonata.utils import Utils

_HASHES: Final = {"MD5": "md5", "SHA-1": "sha1", "SHA-256": "sha256", "SHA-384": "sha384", "SHA-512": "sha512"}


class JsonataError(Exception):
    """An expression cannot be evaluated, or gives no JSON value; the text says why."""


def _partition(values: list[Any], size: int) -> list[list[Any]]:
    return [values[start : start + size] for start in range(0, len(values), size)]


def _range(first: int, last: int, step: int) -> list[int]:
    return list(range(first, last + (1 if step > 0 else -1), step))


def _hash(text: str, algorithm: str) -> str:
    return hashlib.new(_HASHES[algorithm], text.encode()).hexdigest()


# The functions that Step Functions adds to JSONata.
STATES_FUNCTIONS: Final[Mapping[str, Callable[..., Any]]] = {
    "partition": _partition,
    "range": _range,
    "hash": _hash,
    "uuid": lambda: str(uuid.uuid4()),
    "parse": json.loads,
}


def evaluate(expression: str, bindings: Mapping[str, Any]) -> Any:
    """Evaluate one expression without its ``{% %}``; the result shares nothing with `bindings`.

    Raises JsonataError when the expression is wrong, fails, or returns nothing (undefined) or a function.
    """
    try:
        compiled = Jsonata(expression)
        compiled.set_output_convert_nulls(False)
        for name, function in STATES_FUNCTIONS.items():
            compiled.register_lambda(name, function)
        result = compiled.evaluate(None, dict(bindings))
    except Exception as error:  # jsonata-python raises whatever its functions raise
        raise JsonataError(f"The JSONata expression '{expression}' failed: {error}") from error
    if result is None:
        raise JsonataError(f"The JSONata expression '{expression}' returned nothing (undefined).")
    try:
        return json.loads(json.dumps(result, default=_null_only))
    except (TypeError, ValueError) as error:
        raise JsonataError(f"The JSONata expression '{expression}' returned an unsupported result type.") from error


def _null_only(value: object) -> None:
    if value is not Utils.NULL_VALUE:
        raise TypeError(type(value).__name__)
