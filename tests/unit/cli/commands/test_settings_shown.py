"""What a person sees of a job's settings: who gave each, what is wrong, what is not evaluated, and why."""

import json
from dataclasses import replace

from tests.support.small_job import JOB
from tests.unit.cli.seen import Deployed, deployed, job
from trainguard.job_policy import JobPolicy

__all__ = ["deployed"]

PATIENCE = "LowGPUUtilization_patience"
FAULT = "SSM parameter /TrainGuard/settings/llm: BatchSize_patience is 'x', expected a whole number from 0"


def test_given_a_job_that_is_not_evaluated_when_its_status_is_asked_for_then_it_says_why(deployed: Deployed) -> None:
    why = "stack default /TrainGuard/default-settings says off"
    deployed.add(replace(job("left-alone", active=False), policy=JobPolicy(evaluated=False, why=why)))
    assert f"not evaluated\t{why}" in deployed.run("status", "left-alone").stdout.splitlines()
    found = json.loads(deployed.run("status", "left-alone", "--json").stdout)
    assert (found["evaluated"], found["evaluated_because"]) == (False, why)
    assert "not evaluated" not in deployed.run("status", JOB).stdout


def test_given_faults_and_rules_of_others_when_a_jobs_status_is_asked_for_then_each_stands_there(
    deployed: Deployed,
) -> None:
    given = replace(
        job("faulty"),
        setting_faults=(FAULT,),
        rules_elsewhere={"Loss": "a rule of tensors"},
        rule_places={"low": "s3://mine/"},
    )
    deployed.add(given)
    lines = deployed.run("status", "faulty").stdout.splitlines()
    assert {FAULT, "Loss\ta rule of tensors", "low\ts3://mine/"} <= set(lines)
    found = json.loads(deployed.run("status", "faulty", "--json").stdout)
    assert (found["setting_faults"], found["rules_elsewhere"]) == ([FAULT], {"Loss": "a rule of tensors"})


def test_given_settings_of_two_sources_when_parameters_are_asked_for_then_each_says_who_gave_it(
    deployed: Deployed,
) -> None:
    tag = "tag trainguard:LowGPUUtilization_threshold_p95"
    sources = {PATIENCE: "stack default /TrainGuard/default-settings", "LowGPUUtilization_threshold_p95": tag}
    settings = {PATIENCE: "7", "LowGPUUtilization_threshold_p95": "60"}
    deployed.add(replace(job("settled"), rule_settings=settings, setting_sources=sources))
    found = json.loads(deployed.run("params", "lowgpu", "--job", "settled", "--json").stdout)
    in_force = {entry["name"]: entry["in_force"] for entry in found["parameters"]}
    assert (in_force["patience"]["value"], in_force["patience"]["source"]) == (7, sources[PATIENCE])
    assert in_force["threshold_p95"]["source"] == tag
    assert in_force["window"]["source"] == "default"


def test_given_a_bad_setting_when_parameters_are_asked_for_then_the_fault_names_who_gave_it(deployed: Deployed) -> None:
    deployed.add(
        replace(job("bad"), rule_settings={PATIENCE: "x"}, setting_sources={PATIENCE: "rule configuration low"})
    )
    found = json.loads(deployed.run("params", "lowgpu", "--job", "bad", "--json").stdout)
    assert "given by rule configuration low" in found["fault"]
