"""How a job becomes known with its settings: once, completely, and with one notice of what is wrong."""

from dataclasses import replace

import msgspec
import pytest

from tests.functional.worlds import BUCKET, MemoryUnderTest, World
from tests.support.faults import Crash, Fault
from tests.support.memory import MemoryJournal
from trainguard.core.errors import PortUnavailableError
from trainguard.core.layout import ProfileRoot
from trainguard.core.ports import JobServices, RuleConfiguration
from trainguard.core.records import JobRecord
from trainguard.engine.installed import FAMILIES
from trainguard.engine.jobs.job_registry import JobRegistry
from trainguard.engine.profiler.family import PROFILER
from trainguard.engine.settings.job_settings import SETTING_READERS
from trainguard.engine.settings.tag_names import STOP_ALLOWED, STOP_TAG
from trainguard.rules.family_rules import bare
from trainguard.rules.training.registry import TRAINING_RULES, TRUSTED_RULES
from trainguard.stack.actions.alert import compose_alert
from trainguard.stack.actions.request import AlertRequest

NOW = 1_800_000_000.0
RETENTION_S = 90 * 86_400
JOB, PARAMETER = "prod-llm-1", "LowGPUUtilization_threshold_p95"
BAD = {f"trainguard:{PARAMETER}": "160"}


def registry(world: World, journal: MemoryJournal | None = None) -> JobRegistry:
    services = JobServices(
        jobs=world.jobs,
        nodes=world.nodes,
        tasks=world.tasks,
        training_jobs=world.training_jobs,
        settings=world.settings,
        executions=world.executions,
        journal=journal or MemoryJournal(),
    )
    return JobRegistry(services, FAMILIES, lambda: NOW)


def ensure(world: World, job: str = JOB, journal: MemoryJournal | None = None) -> JobRecord:
    record = registry(world, journal).ensure(world.bookkeeping, bucket=BUCKET, root=ProfileRoot("runs/", job))
    assert record is not None
    return record


def test_job_without_settings_has_those_of_the_stack(world: World) -> None:
    world.create_training_job(JOB, {})
    world.put_settings(world.settings.default, f'{{"evaluate": "all", "{PARAMETER}": 50}}')
    job = ensure(world)
    assert job.rule_settings == {PARAMETER: "50"}
    assert job.setting_sources == dict.fromkeys(("evaluate", PARAMETER), "stack default /TrainGuard/default-settings")
    assert (job.policy.evaluated, job.active, job.expires_at) == (True, True, None)
    assert (job.setting_faults, world.started()) == ((), {})
    assert world.jobs.load(JOB) == job


def test_settings_sources_are_ranked(world: World) -> None:
    names = ("LowGPUUtilization_patience", "BatchSize_patience", "CPUBottleneck_patience", "StepOutlier_stddev")
    world.create_training_job(JOB, {"trainguard:settings": "llm", f"trainguard:{names[0]}": "1"})
    world.put_settings(world.settings.default, str(dict.fromkeys(names, 4)).replace("'", '"'))
    world.put_settings(f"{world.settings.path}llm", str(dict.fromkeys(names[:3], 3)).replace("'", '"'))
    described = world.training_jobs.describe(JOB)
    assert described is not None
    configuration = {"rule_to_invoke": "ProfilerReport", **dict.fromkeys(names[:2], "2")}
    described = replace(described, profiler_rules=(RuleConfiguration("report", "image", configuration, "s3://mine/"),))
    job = registry(world).register(described, bucket=BUCKET, root=ProfileRoot("", JOB))
    assert job.rule_settings == dict(zip(names, ("1", "2", "3", "4"), strict=True))
    assert [job.setting_sources[name] for name in names] == [
        "tag trainguard:LowGPUUtilization_patience",
        "rule configuration report",
        "SSM parameter /TrainGuard/settings/llm",
        "stack default /TrainGuard/default-settings",
    ]
    assert job.rule_places == {"report": "s3://mine/"}
    assert job.setting_faults == ()


def test_configured_tensor_rules_run(world: World) -> None:
    world.create_training_job(JOB, {})
    described = world.training_jobs.describe(JOB)
    assert described is not None
    configured = (
        RuleConfiguration("loss", "image", {"rule_to_invoke": "LossNotDecreasing", "num_steps": "20"}),
        RuleConfiguration("stop", "image", {"rule_to_invoke": "Overfit", "action_json": '{"name": "stoptraining"}'}),
        RuleConfiguration("own", "image", {"rule_to_invoke": "Mine", "source_s3_uri": "s3://code/rules.py"}),
    )
    described = replace(described, debugger_rules=configured)
    job = registry(world).register(described, bucket=BUCKET, root=ProfileRoot("", JOB))
    assert job.training_rules == ("training/LossNotDecreasing", "training/Overfit")
    assert job.rule_settings == {"LossNotDecreasing_num_steps": "20"}
    assert job.setting_faults == ()
    assert set(job.rules_elsewhere) == {"stop/action_json", "own"}
    plan = FAMILIES.plan(job)
    assert [rule.name for rule in plan.rules_of("training")] == ["training/LossNotDecreasing", "training/Overfit"]
    assert plan.parameters_of("training/LossNotDecreasing").num_steps == 20
    stored = world.jobs.load(JOB)
    assert stored is not None
    assert stored.training_rules == job.training_rules


@pytest.mark.parametrize(
    ("tags", "chosen"),
    [
        ({}, {"ExplodingTensor", "StalledTrainingRule", *(bare(rule.name) for rule in TRUSTED_RULES)}),
        ({"trainguard:training-rules": "none"}, set()),
        ({"trainguard:training-rules": "none", "trainguard:Overfit_patience": "3"}, set()),
        ({"trainguard:training-rules": "overfit allzero"}, {"Overfit", "AllZero"}),
        ({"trainguard:Overfit_patience": "3"}, {"Overfit"}),
        ({"trainguard:training-rules": "AllZero", "trainguard:Overfit_patience": "3"}, {"Overfit", "AllZero"}),
        ({"trainguard:training-rules": "all"}, {bare(rule.name) for rule in TRAINING_RULES}),
    ],
)
def test_chosen_training_rules_run_with_every_profiler_rule(
    world: World, tags: dict[str, str], chosen: set[str]
) -> None:
    world.create_training_job(JOB, tags)
    job = ensure(world)
    plan = FAMILIES.plan(job)
    assert {bare(rule.name) for rule in plan.rules_of("training")} == chosen
    assert plan.rules_of("profiler") == PROFILER.rules
    assert plan.disabled == ()
    assert job.setting_faults == ()


def test_choice_of_a_non_training_rule_is_a_fault(world: World) -> None:
    world.create_training_job(JOB, {"trainguard:training-rules": "StepOutlier"})
    (fault,) = ensure(world).setting_faults
    assert "names of rules of training health" in fault


def test_bad_setting_disables_its_rule_alone_with_one_notice(world: World) -> None:
    world.create_training_job(JOB, BAD)
    journal = MemoryJournal()
    job = ensure(world, journal=journal)
    said = f"tag trainguard:{PARAMETER}: {PARAMETER} is '160', expected a number from 0 to 100"
    assert job.setting_faults == (said,)
    plan = FAMILIES.plan(job)
    assert set(plan.faults) == {"LowGPUUtilization"}
    assert f"given by tag trainguard:{PARAMETER}" in str(plan.faults["LowGPUUtilization"])
    ((name, notice),) = world.started().items()
    assert name.startswith("Settings-")
    assert name.endswith(f"-{JOB}")
    assert (notice["kind"], notice["rule"], notice["job"]) == ("notice", "Settings", JOB)
    assert (notice["reason"], notice["faults"]) == (said, [said])
    assert [(entry.what, entry.where["reason"]) for entry in journal.entries] == [("configuration_faults", said)]


def test_notice_lists_each_fault_for_people_and_machines(world: World) -> None:
    world.create_training_job(JOB, BAD | {"trainguard:muted": "all"})
    (said,) = ensure(world).setting_faults
    (notice,) = world.started().values()
    given = {"fire": notice, "decision": {}, "stop": {"made": False, "error": None}}
    alert = compose_alert(AlertRequest.read(given), now=NOW)
    assert said in alert.text
    assert said in alert.document["faults"]


def test_notice_of_the_most_faults_is_far_below_the_sns_limit(
    world: World,
) -> None:
    tags = {f"trainguard:{'Nonsense' * 12}_{number}": "\x07" * 256 for number in range(49)}
    world.create_training_job(JOB, tags)
    assert len(ensure(world).setting_faults) == 41
    (notice,) = world.started().values()
    assert str(notice["reason"]).endswith("and 36 more")
    assert 6 * len(msgspec.json.encode(notice)) < 256_000


def test_later_objects_of_a_registered_job_send_no_notice(world: World) -> None:
    world.create_training_job(JOB, BAD)
    first = ensure(world)
    world.put_settings(world.settings.default, "{")
    assert ensure(world) == first
    assert len(world.started()) == 1


def test_stack_default_holds_for_a_job_unknown_to_sagemaker(world: World) -> None:
    world.put_settings(world.settings.default, f'{{"evaluate": ["prod-*"], "{PARAMETER}": 50}}')
    job = ensure(world)
    assert (job.arn, job.rule_settings, job.policy.evaluated) == (f"unknown:{JOB}@runs/", {PARAMETER: "50"}, True)
    assert not ensure(world, "dev-1").policy.evaluated


@pytest.mark.parametrize("document", [None, "no JSON", "[]"])
def test_unusable_default_is_ignored_whole_and_reported(world: World, document: str | None) -> None:
    world.create_training_job(JOB, {f"trainguard:{PARAMETER}": "60", "trainguard:stop-rules": "all"})
    if document is None:
        world.remove_settings(world.settings.default)
    else:
        world.put_settings(world.settings.default, document)
    job = ensure(world)
    assert (job.rule_settings, job.policy.evaluated) == ({PARAMETER: "60"}, True)
    assert job.policy.stops.rules == ()
    (fault,) = job.setting_faults
    assert fault.startswith("stack default /TrainGuard/default-settings: it is ")
    assert len(world.started()) == 1


@pytest.mark.parametrize(
    ("named", "begins"),
    [
        ("nothing", "SSM parameter /TrainGuard/settings/nothing: it is 'not there', expected a JSON document"),
        ("/Other/settings/x", "tag trainguard:settings: settings is '/Other/settings/x', expected the name of an SSM"),
    ],
)
def test_tag_naming_no_document_leaves_the_others(world: World, named: str, begins: str) -> None:
    world.create_training_job(JOB, {"trainguard:settings": named})
    world.put_settings(world.settings.default, f'{{"{PARAMETER}": 50}}')
    job = ensure(world)
    assert job.rule_settings == {PARAMETER: "50"}
    (fault,) = job.setting_faults
    assert fault.startswith(begins)


def test_unrequested_job_says_why_and_expires(world: World) -> None:
    world.create_training_job(JOB, {"team": "vision"})
    world.put_settings(world.settings.default, f'{{"evaluate": "tagged", "{PARAMETER}": 500}}')
    job = ensure(world)
    assert not job.policy.evaluated
    assert job.policy.why.endswith("evaluates tagged jobs alone, and the job has no tag of TrainGuard's")
    assert (job.active, job.expires_at) == (False, int(NOW) + RETENTION_S)
    assert world.jobs.active() == []
    assert world.started() == {}, "what is wrong with the stack's default is no business of a job that it leaves alone"


def test_bad_setting_of_a_disabled_job_notifies_the_owner(world: World) -> None:
    world.create_training_job(JOB, BAD | {"trainguard:evaluate": "off"})
    assert not ensure(world).policy.evaluated
    assert len(world.started()) == 1


@pytest.mark.parametrize("fault", [Fault.FAIL_BEFORE, Fault.FAIL_AFTER])
@pytest.mark.parametrize("nth", [1, 2])
def test_unreadable_settings_write_nothing_until_retried(fault: Fault, nth: int) -> None:
    world = MemoryUnderTest()
    world.create_training_job(JOB, {"trainguard:settings": "llm"})
    world.put_settings(f"{world.settings.path}llm", f'{{"{PARAMETER}": 50}}')
    world.faults.schedule("SettingDocuments.read", fault, nth=nth)
    with pytest.raises(PortUnavailableError):
        ensure(world)
    assert (world.jobs.load(JOB), world.started()) == (None, {})
    job = ensure(world)
    assert (job.rule_settings, job.setting_faults) == ({PARAMETER: "50"}, ())


def test_crash_in_registration_gives_the_same_item_and_notice() -> None:
    undisturbed = MemoryUnderTest()
    undisturbed.create_training_job(JOB, BAD)
    expected = ensure(undisturbed)
    calls = len(undisturbed.faults.calls)
    assert calls >= 5
    for number in range(calls):
        world = MemoryUnderTest()
        world.create_training_job(JOB, BAD)
        world.faults.crash_after(number)
        with pytest.raises(Crash):
            ensure(world)
        assert ensure(world) == expected
        assert world.started() == undisturbed.started()


def test_hostile_tags_are_storable_with_printable_fault_lines(
    world: World,
) -> None:
    tags = {f"trainguard:{name}": "x" * 256 for name in ("é\u2028", "_", "LowGPUUtilization_", "<script>", "a" * 117)}
    world.create_training_job(JOB, tags | {"trainguard:muted": "\x1b[31m", "trainguard:stop-": "", "trainguard:": "1"})
    job = ensure(world)
    assert len(job.setting_faults) == 8
    assert all(fault.isprintable() for fault in job.setting_faults)
    assert job.policy.stops.rules == ()
    assert world.jobs.load(JOB) == job


@pytest.mark.parametrize("tags", [{}, {STOP_TAG: STOP_ALLOWED}])
@pytest.mark.parametrize("uri", [None, "", "s3://", "https://example.com/a", f"s3://{BUCKET}"])
def test_a_job_that_names_no_place_may_not_be_stopped(tags: dict[str, str], uri: str | None) -> None:
    world = MemoryUnderTest()
    world.create_training_job(JOB, tags)
    described = world.training_jobs.describe(JOB)
    assert described is not None
    job = registry(world).register(replace(described, profile_uri=uri), bucket=BUCKET, root=ProfileRoot("runs/", JOB))
    named = uri == f"s3://{BUCKET}"
    assert job.policy.stops.may_stop("LowGPUUtilization") is named
    assert [fault.partition(",")[0] for fault in job.setting_faults] == (
        [] if named or not tags else ["ProfilerConfig: S3OutputPath is 'not given'"]
    )
    assert (job.policy.evaluated, job.prefix) == (True, "" if named else "runs/")


SETTINGS_OF_EVERY_KIND = {
    "LowGPUUtilization_threshold_p95": ("11", "22", "33"),
    "rule_to_invoke": ("LowGPUUtilization", "CPUBottleneck", "StepOutlier"),
    "evaluate": ("on", "tagged", "all"),
    "staged": ("BatchSize", "StepOutlier", "Dataloader"),
    "muted": ("BatchSize", "StepOutlier", "Dataloader"),
    "quiet-hours": ("22:00-01:00", "22:00-02:00", "22:00-03:00"),
    "training-rules": ("AllZero", "Overfit", "none"),
    "stop-rules": ("BatchSize", "StepOutlier", "Dataloader"),
    "stop-grace": ("1m", "2m", "3m"),
    "stop-dry-run": ("true", "false", "true"),
    "evaluation-every-s": ("60", "120", "300"),
    "time-limit": ("90m", "24h", "5d"),
    "total-steps": ("100", "2000", "30000"),
    "source": ("logs", "mlflow run=0a1b", "prometheus pod=train-0"),
    "user-tags": ("made-by", "login", "none"),
    "team-tags": ("squad", "tribe", "none"),
    "project-tags": ("product", "service", "none"),
}

OWNERS = {"made-by": "ann", "login": "bob", "squad": "a", "tribe": "b", "product": "c", "service": "d"}


def test_each_kind_of_setting_is_in_the_table() -> None:
    assert set(SETTING_READERS) <= set(SETTINGS_OF_EVERY_KIND)


# Which of tag, parameter and default give a setting.
GIVEN_BY = ((0, 1, 2), (1, 2), (2,), (0, 2))


@pytest.mark.parametrize("setting", SETTINGS_OF_EVERY_KIND)
def test_the_highest_source_that_has_a_setting_counts(setting: str) -> None:
    values = SETTINGS_OF_EVERY_KIND[setting]
    alone = [in_force(registered_with(setting, value))[setting] for value in values]
    assert len(set(map(str, alone))) >= 2
    for given_by in GIVEN_BY:
        world = MemoryUnderTest()
        named = f"{world.settings.path}llm"
        origins = (f"tag trainguard:{setting}", f"SSM parameter {named}", f"stack default {world.settings.default}")
        of_tag = {f"trainguard:{setting}": values[0]} if 0 in given_by else {}
        world.create_training_job(JOB, OWNERS | {"trainguard:settings": "llm"} | of_tag)
        for rank, name in ((1, named), (2, world.settings.default)):
            world.put_settings(name, msgspec.json.encode({setting: values[rank]} if rank in given_by else {}).decode())
        described = world.training_jobs.describe(JOB)
        assert described is not None
        place = replace(described, profile_uri=f"s3://{BUCKET}")
        job = registry(world).register(place, bucket=BUCKET, root=ProfileRoot("", JOB))
        assert job.setting_sources == {setting: origins[given_by[0]]}
        assert job.setting_faults == ()
        assert in_force(job)[setting] == alone[given_by[0]]


def registered_with(setting: str, value: str) -> JobRecord:
    """Return a job to which a tag alone gives a setting."""
    world = MemoryUnderTest()
    world.create_training_job(JOB, OWNERS | {f"trainguard:{setting}": value})
    described = world.training_jobs.describe(JOB)
    assert described is not None
    place = replace(described, profile_uri=f"s3://{BUCKET}")
    return registry(world).register(place, bucket=BUCKET, root=ProfileRoot("", JOB))


def in_force(job: JobRecord) -> dict[str, object]:
    """Return what holds for a job by the name of each setting."""
    policy = job.policy
    return {
        **dict(job.rule_settings),
        "evaluate": (policy.evaluated, policy.why.rpartition(" ")[2]),
        "staged": policy.alerts.staged,
        "muted": policy.alerts.muted,
        "quiet-hours": policy.alerts.quiet_hours,
        "stop-rules": policy.stops.rules,
        "stop-grace": policy.stops.grace_s,
        "stop-dry-run": policy.stops.dry_run,
        "training-rules": job.training_rules,
        "source": policy.source,
        "time-limit": job.time_limit_s,
        "total-steps": job.total_steps,
        "evaluation-every-s": policy.evaluation_every_s,
        **{f"{kind}-tags": job.owners.get(kind) for kind in ("user", "team", "project")},
    }
