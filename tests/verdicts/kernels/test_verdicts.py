"""The rules name planted faults with their operators, and leave healthy and damaged traces alone."""

import re

import pytest

from tests.verdicts.kernels.faults import FAULTS, STRENGTHS, damaged, faulty
from tests.verdicts.kernels.forms import FORMS
from tests.verdicts.kernels.healthy import healthy, planned
from tests.verdicts.kernels.held_out import HELD_OUT
from tests.verdicts.kernels.machine import Op, traces
from tests.verdicts.kernels.planting import behind
from tests.verdicts.kernels.scoring import (
    PYTORCH,
    SECOND,
    alarms,
    findings,
    judged_faults,
    judged_healthy,
    named_share,
    table,
)
from trainguard.kernels.rules.registry import SPECS

NAMED = 0.95


@pytest.mark.verdicts
@pytest.mark.parametrize("form", [PYTORCH, SECOND, *FORMS])
def test_planted_faults_are_named_with_operator(form: str) -> None:
    assert named_share(judged_faults(form)) >= NAMED, table(form)


@pytest.mark.verdicts
@pytest.mark.parametrize("form", [PYTORCH, SECOND, *FORMS])
def test_healthy_and_damaged_traces_have_no_finding(form: str) -> None:
    assert alarms(judged_healthy(form)) == []


@pytest.mark.parametrize("form", FORMS)
def test_labels_of_a_form_are_of_known_faults(form: str) -> None:
    left_out = {kind for kinds in FORMS[form].without.values() for kind in kinds}
    assert left_out <= set(FAULTS)
    assert set(FORMS[form].labels) <= set(FAULTS) - left_out


def test_labels_name_known_rules_and_what_to_find() -> None:
    known = {name.removeprefix("kernels/") for name in SPECS}
    assert len(FAULTS) >= 40
    assert len(HELD_OUT) >= 20
    for kind, fault in (FAULTS | HELD_OUT).items():
        assert fault.rules, kind
        assert fault.rules <= known, kind
        assert re.search(fault.names, "") is None, kind


def test_healthy_and_damaged_trainings_are_many() -> None:
    assert len(dict(healthy())) >= 40
    assert len(damaged()) >= 20


@pytest.mark.parametrize("kind", FAULTS)
def test_each_fault_changes_its_training(kind: str) -> None:
    fault = FAULTS[kind]
    weak, strong = (faulty(fault, STRENGTHS[strength], 1) for strength in ("weak", "strong"))
    assert planned(fault.model, fault.gpu, ranks=fault.ranks, steps=fault.steps, seed=1) != weak != strong


def test_ranks_end_their_collectives_together() -> None:
    job = planned("resnet", "A100", ranks=2, steps=2)
    late = behind(job, "DataLoader", Op("", host=5_000.0))
    mixed = type(job)(job.gpu, (job.ranks[0], late.ranks[1]))
    assert len(traces(mixed)) == 2
    assert findings(job) == []
