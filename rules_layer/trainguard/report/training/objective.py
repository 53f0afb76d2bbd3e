"""What a model learns, as far as that says how predictions are compared with labels."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

REGRESSION, BINARY, MULTICLASS = "reg:squarederror", "binary:logistic", "multi:softmax"
PROBABILITIES = "multi:softprob"
KNOWN = (REGRESSION, BINARY, MULTICLASS, PROBABILITIES)
_HALF = 0.5


@dataclass(frozen=True, slots=True)
class Objective:
    """An objective of XGBoost by its name; None of any other model."""

    name: str | None

    @property
    def is_known(self) -> bool:
        """Whether the report has sections for it."""
        return self.name in KNOWN

    @property
    def is_binary(self) -> bool:
        """Whether predictions are probabilities of class 1."""
        return self.name == BINARY

    @property
    def is_regression(self) -> bool:
        """Whether labels are quantities."""
        return self.name == REGRESSION

    def row_wise(self, samples: int, predictions: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return one prediction a sample (float64[N]): of probabilities of each class, the class of the highest.

        Predictions of ``multi:softprob`` come as a row a sample, flat or not; others stay as they are.
        """
        if self.name != PROBABILITIES or not samples or predictions.size % samples or predictions.size == samples:
            return predictions
        highest: NDArray[np.float64] = predictions.reshape(samples, -1).argmax(axis=1).astype(np.float64)
        return highest

    def classes(self, labels: NDArray[np.float64], predictions: NDArray[np.float64]) -> NDArray[np.int64] | None:
        """Return the classes (int64[N]) that predictions name; None where they name none.

        A probability above one half is class 1. A model without an objective predicts classes where both labels and
        predictions are whole numbers.
        """
        if self.is_binary:
            return (predictions > _HALF).astype(np.int64) if _are_whole(labels) else None
        if self.name in (MULTICLASS, PROBABILITIES, None):
            return predictions.astype(np.int64) if _are_whole(labels) and _are_whole(predictions) else None
        return None


def _are_whole(values: NDArray[np.float64]) -> bool:
    return bool((np.abs(values) < 2.0**53).all() and (values == np.trunc(values)).all())
