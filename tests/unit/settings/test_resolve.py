"""Which setting counts, what becomes of a fault, and whether a job is evaluated."""

import pytest

from trainguard.core.job_policy import EVERY_JOB, AlertPolicy, JobPolicy, QuietHours, StopPolicy
from trainguard.core.records import JobRecord
from trainguard.engine.installed import FAMILIES
from trainguard.engine.settings.job_settings import MOST_PARAMETERS, Resolved, Source, resolve
from trainguard.engine.settings.sources import read_document, tag_source, unusable

LOW_GPU = "LowGPUUtilization_threshold_p95"


def tags(**named: str) -> Source:
    return tag_source({f"trainguard:{name.replace('__', '-')}": value for name, value in named.items()})


def resolved(*sources: Source, job: str = "prod-llm-1", asked: bool = True) -> Resolved:
    return resolve(job, sources, asked=asked)


def test_given_nothing_when_resolved_then_code_alone_holds() -> None:
    assert resolved(asked=False) == Resolved(policy=JobPolicy(evaluated=True, why=EVERY_JOB))


def test_policy_holds_every_choice() -> None:
    found = resolved(
        tags(
            evaluate="on",
            staged="BatchSize",
            muted="StepOutlier",
            quiet__hours="sat 22:00-07:00 Asia/Tokyo",
            stop__rules="LowGPUUtilization",
            stop__grace="10m",
            stop__dry__run="true",
        )
    )
    assert found.faults == ()
    assert found.policy == JobPolicy(
        evaluated=True,
        why="tag trainguard:evaluate says on",
        alerts=AlertPolicy(
            staged=("BatchSize",),
            muted=("StepOutlier",),
            quiet_hours=(QuietHours(days=("sat",), start="22:00", end="07:00", timezone="Asia/Tokyo"),),
        ),
        stops=StopPolicy(rules=("LowGPUUtilization",), grace_s=600.0, dry_run=True),
    )
    assert found.sources["stop-grace"] == "tag trainguard:stop-grace"


def test_policy_of_a_rule_respects_all_and_names() -> None:
    alerts = AlertPolicy(staged=("all",), muted=("StepOutlier",))
    assert (alerts.is_staged("BatchSize"), alerts.is_muted("StepOutlier"), alerts.is_muted("BatchSize")) == (
        True,
        True,
        False,
    )
    assert StopPolicy().may_stop("BatchSize")
    assert not StopPolicy(rules=()).may_stop("BatchSize")
    assert not StopPolicy(rules=("StepOutlier",)).may_stop("BatchSize")
    assert StopPolicy(rules=("all",)).may_stop("BatchSize")


def test_higher_source_of_a_parameter_counts_in_any_spelling() -> None:
    default = read_document(
        "default", '{"LowGPUUtilization": {"threshold_p95": 50, "window": 400}, "BatchSize_patience": 7}'
    )
    found = resolved(tags(lowgpuutilization_THRESHOLD_P95="60", LowGPUUtilization_window_s="30"), default)
    assert found.parameters == {
        "lowgpuutilization_THRESHOLD_P95": "60",
        "LowGPUUtilization_window_s": "30",
        "BatchSize_patience": "7",
    }
    assert found.sources == {
        "lowgpuutilization_THRESHOLD_P95": "tag trainguard:lowgpuutilization_THRESHOLD_P95",
        "LowGPUUtilization_window_s": "tag trainguard:LowGPUUtilization_window_s",
        "BatchSize_patience": "default",
    }
    assert found.faults == ()


def test_bad_value_of_the_higher_source_does_not_fall_back() -> None:
    default = read_document("default", f'{{"{LOW_GPU}": 50, "BatchSize_patience": 7}}')
    found = resolved(tags(**{LOW_GPU: "160"}), default)
    told = f"{LOW_GPU} is '160', expected a number from 0 to 100"
    assert [str(fault) for fault in found.faults] == [f"tag trainguard:{LOW_GPU}: {told}"]
    record = JobRecord("job", "arn", "b", "p", rule_settings=found.parameters, setting_sources=found.sources)
    plan = FAMILIES.plan(record)
    assert {rule: str(fault) for rule, fault in plan.faults.items()} == {
        "LowGPUUtilization": f"LowGPUUtilization: parameter {LOW_GPU} is '160', given by tag trainguard:{LOW_GPU}, "
        "expected a number from 0 to 100"
    }
    assert plan.parameters_of("BatchSize").patience == 7


def test_overridden_bad_value_of_the_lower_source_is_no_fault() -> None:
    default = read_document("default", f'{{"{LOW_GPU}": 500, "alerts": {{"muted": "Nonsense"}}}}')
    assert resolved(tags(**{LOW_GPU: "60"}, muted="none"), default).faults == ()


def test_list_value_below_a_bad_tag_reports_both_faults() -> None:
    default = read_document("default", f'{{"{LOW_GPU}": [1]}}')
    found = resolved(tags(**{LOW_GPU: "160"}), default)
    assert [fault.source for fault in found.faults] == ["default", f"tag trainguard:{LOW_GPU}"]


def test_each_of_several_faults_of_one_rule_is_reported() -> None:
    found = resolved(tags(**{LOW_GPU: "x", "LowGPUUtilization_patience": "-1", "LowGPUUtilization_nonsense": "1"}))
    assert {fault.setting for fault in found.faults} == {
        LOW_GPU,
        "LowGPUUtilization_patience",
        "LowGPUUtilization_nonsense",
    }


@pytest.mark.parametrize(
    "source",
    [
        tags(stop__rules="Nonsense"),
        tags(stop__grace="soon"),
        tags(stop__dry__run="perhaps"),
        tags(stop__dryrun="true"),
        read_document("doc", '{"stops": {"dryrun": true}}'),
        read_document("doc", '{"stops": []}'),
        read_document("doc", "{"),
        unusable("doc", "not there", "a document"),
    ],
)
def test_fault_in_what_may_stop_forbids_all_stops(source: Source) -> None:
    found = resolved(source, tags(muted="StepOutlier"))
    assert len(found.faults) == 1
    assert found.policy.stops.rules == ()
    assert found.policy.alerts.muted == ("StepOutlier",)


@pytest.mark.parametrize("source", [tags(muted="Nonsense"), tags(evaluate="maybe"), tags(quiet__hours="late")])
def test_other_fault_leaves_stops_and_alerts_as_they_are(source: Source) -> None:
    found = resolved(source)
    assert len(found.faults) == 1
    assert found.policy == JobPolicy()


@pytest.mark.parametrize(
    ("wanted", "asked", "evaluated", "why"),
    [
        ('"all"', False, True, "stack default says all"),
        ('"off"', True, False, "stack default says off"),
        ('"tagged"', True, True, "stack default evaluates tagged jobs alone, and the job has a tag of TrainGuard's"),
        ('"tagged"', False, False, "stack default evaluates tagged jobs alone, and the job has no tag of TrainGuard's"),
        ('["dev-*", "prod-*"]', False, True, "its name matches prod-* of stack default"),
        ('["*"]', False, True, "its name matches * of stack default"),
        (
            '["dev-*"]',
            False,
            False,
            "stack default evaluates tagged jobs and dev-* alone, and the job has no tag of TrainGuard's",
        ),
        (
            '["dev-*"]',
            True,
            True,
            "stack default evaluates tagged jobs and dev-* alone, and the job has a tag of TrainGuard's",
        ),
        ("[]", True, False, "stack default says none"),
    ],
)
def test_switch_sets_whether_and_why_a_job_is_evaluated(wanted: str, asked: bool, evaluated: bool, why: str) -> None:
    policy = resolved(read_document("stack default", f'{{"evaluate": {wanted}}}'), asked=asked).policy
    assert (policy.evaluated, policy.why) == (evaluated, why)


@pytest.mark.parametrize(
    ("tag", "default", "evaluated"), [("on", "off", True), ("off", "all", False), ("OFF", "tagged", False)]
)
def test_switch_of_the_job_overrides_that_of_the_stack(tag: str, default: str, evaluated: bool) -> None:
    policy = resolved(tags(evaluate=tag), read_document("stack default", f'{{"evaluate": "{default}"}}')).policy
    assert (policy.evaluated, policy.why) == (evaluated, f"tag trainguard:evaluate says {tag.lower()}")


@pytest.mark.parametrize("job", ["prod", "xprod-1", "PROD-1", ""])
def test_job_name_that_matches_no_pattern_is_not_evaluated(job: str) -> None:
    found = resolved(read_document("stack default", '{"evaluate": ["prod-*"]}'), job=job, asked=False)
    assert not found.policy.evaluated


def test_choice_keeps_its_source_beside_a_parameter_of_its_name() -> None:
    stray = Source("rules", {"evaluate": "x"}, {}, {"evaluate": "rule configuration x"})
    found = resolved(stray, read_document("stack default", '{"evaluate": "off"}'))
    assert found.policy.why == "stack default says off"
    assert [fault.source for fault in found.faults] == ["rule configuration x"]


def test_excess_parameters_are_a_fault_and_keep_the_item_small() -> None:
    found = resolved(Source("doc", {f"BatchSize_p{number:04}": "1" for number in range(MOST_PARAMETERS + 5)}))
    assert len(found.parameters) == MOST_PARAMETERS
    assert len(found.sources) == MOST_PARAMETERS
    assert found.faults[0].setting == "number of parameters"
    assert f"BatchSize_p{MOST_PARAMETERS - 1:04}" in found.faults[0].expected


@pytest.mark.parametrize(
    "source",
    [
        tag_source({"trainguard:stop_dry_run": "true"}),
        tag_source({"trainguard:Stop-dry-run": "true"}),
        tag_source({"trainguard:stops": "none"}),
        read_document("/settings", '{"Stops": {"dry_run": true}}'),
        read_document("/settings", '{"stop_grace": "10m"}'),
    ],
    ids=["underscores", "capital", "group", "document-group", "document-name"],
)
def test_misspelt_stop_setting_is_a_fault_and_forbids_all_stops(
    source: Source,
) -> None:
    found = resolved(source)
    assert len(found.faults) == 1
    assert found.policy.stops.rules == ()
    assert not found.policy.stops.may_stop("LowGPUUtilization")
