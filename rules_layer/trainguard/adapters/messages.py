"""What TrainGuard hands to Step Functions, as text."""

import json
from collections.abc import Mapping


def execution_input(payload: Mapping[str, object]) -> str:
    """Return the input document of an execution.

    Raises ValueError for a number that JSON has no word for and TypeError for a value that JSON has no type for.
    """
    return json.dumps(dict(payload), ensure_ascii=False, allow_nan=False)
