"""Made histories: which broken ones are named, and that none of the healthy ones near the border is."""

import numpy as np

from tests.training.recorded.scoring import fired, steps_of
from tests.verdicts.training.histories import BROKEN, HEALTHY, histories

NOT_NAMED = {"two_softmaxes_that_learn_slowly", "any_labels_by_heart"}


def reasons_of(name: str) -> dict[str, str]:
    series = {curve: np.asarray(values).tolist() for curve, values in histories()[name].curves.items()}
    return {rule: judgement.reason for rule, (_, judgement) in fired(list(steps_of(series))).items()}


def test_broken_histories_are_named_if_their_curves_show_it() -> None:
    silent = {make.__name__ for make in BROKEN if not reasons_of(make.__name__)}
    assert silent == NOT_NAMED
    assert "of 10 classes that is the level of outputs that pass a softmax twice" in str(
        reasons_of("two_softmaxes_of_ten_classes")
    )


def test_healthy_histories_near_the_border_have_no_finding() -> None:
    assert {make.__name__: said for make in HEALTHY if (said := reasons_of(make.__name__))} == {}
