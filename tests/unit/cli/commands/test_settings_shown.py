"""What a person sees of a job's settings: who gave each, what is wrong, what is not evaluated, and why."""

import json
from dataclasses import replace

from tests.support.small_job import JOB
from tests.unit.cli.seen import Deployed, deployed, job
from trainguard.core.job_policy import JobPolicy

__all__ = ["deployed"]

PATIENCE = "LowGPUUtilization_patience"
FAULT = "SSM parameter /TrainGuard/settings/llm: BatchSize_patience is 'x', expected a whole number from 0"


def test_status_of_a_job_not_evaluated_says_why(deployed: Deployed) -> None:
    why = "stack default /TrainGuard/default-settings says off"
    deployed.add(replace(job("left-alone", active=False), policy=JobPolicy(evaluated=False, why=why)))
    assert f"not evaluated\t{why}" in deployed.run("status", "left-alone").stdout.splitlines()
    found = json.loads(deployed.run("status", "left-alone", "--json").stdout)
    assert (found["evaluated"], found["evaluated_because"]) == (False, why)
    assert "not evaluated" not in deployed.run("status", JOB).stdout


def test_status_shows_faults_and_rules_run_elsewhere(
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


def test_each_setting_says_which_source_gave_it(
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


def test_fault_of_a_setting_names_the_source(deployed: Deployed) -> None:
    deployed.add(
        replace(job("bad"), rule_settings={PATIENCE: "x"}, setting_sources={PATIENCE: "rule configuration low"})
    )
    found = json.loads(deployed.run("params", "lowgpu", "--job", "bad", "--json").stdout)
    assert "given by rule configuration low" in found["fault"]
