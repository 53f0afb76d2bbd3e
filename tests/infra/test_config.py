"""What a person may choose: text from the command line and values from ``cdk.json`` alike, all faults at once."""

import pytest

from infra.config import DeploymentConfig, DeploymentConfigError


def test_given_no_context_when_read_then_the_defaults_hold() -> None:
    config = DeploymentConfig.from_context({})
    assert config == DeploymentConfig()
    assert config.retain_data
    assert config.profile_retention_days == 30
    assert config.stop_switch == "enabled"
    assert not config.emulator


def test_given_text_and_json_values_when_read_then_both_mean_the_same() -> None:
    text = {
        "retain_data": "false",
        "profile_retention_days": "7",
        "log_retention_days": "90",
        "alert_emails": "a@example.com, b@example.com",
        "emulator": "true",
    }
    values = {
        "retain_data": False,
        "profile_retention_days": 7,
        "log_retention_days": 90,
        "alert_emails": ["a@example.com", "b@example.com"],
        "emulator": True,
    }
    assert DeploymentConfig.from_context(text) == DeploymentConfig.from_context(values)
    assert DeploymentConfig.from_context(text).alert_emails == ("a@example.com", "b@example.com")


def test_given_several_wrong_values_when_read_then_the_error_names_each_with_what_would_be_right() -> None:
    context = {
        "retain_data": "maybe",
        "profile_bucket": "Not_A_Bucket",
        "profile_retention_days": "0",
        "log_retention_days": 8,
        "max_write_units": True,
        "evaluator_concurrency": "1",
        "alert_emails": "nobody",
        "operations_emails": 7,
        "stop_switch": "on",
        "emulator": "yes",
    }
    with pytest.raises(DeploymentConfigError) as failure:
        DeploymentConfig.from_context(context)
    assert failure.value.faults == [
        "retain_data is 'maybe', expected true or false",
        "profile_bucket is 'Not_A_Bucket', expected the name of an existing S3 bucket",
        "profile_retention_days is '0', expected a whole number from 1 to 3650",
        "log_retention_days is 8, expected one of 1, 3, 5, 7, 14, 30, 60, 90, 180, 365",
        "max_write_units is True, expected a whole number from 1 to 40000",
        "evaluator_concurrency is '1', expected a whole number from 2 to 1000",
        "alert_emails is 'nobody', expected addresses separated by commas",
        "operations_emails is 7, expected addresses separated by commas",
        "stop_switch is 'on', expected one of enabled, dry-run, disabled",
        "emulator is 'yes', expected true or false",
    ]


@pytest.mark.parametrize("name", DeploymentConfig.names())
def test_given_a_setting_when_listed_then_it_is_a_field(name: str) -> None:
    assert name in DeploymentConfig.__dataclass_fields__


def test_given_the_fields_when_listed_then_each_can_be_set_from_context() -> None:
    assert set(DeploymentConfig.names()) == set(DeploymentConfig.__dataclass_fields__)
