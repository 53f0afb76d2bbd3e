"""Links to a job's run in other tools: which are made, and which never reach a mail, a chat or a page."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainguard.core.layout import LONGEST_LINK, is_plain_link, mlflow_run_of, plain_links, run_links
from trainguard.engine.settings.job_settings import run_pages

MLFLOW = {"MLFLOW_TRACKING_URI": "https://mlflow.example.com/", "MLFLOW_RUN_ID": "5e6663ce"}
WANDB = {"WANDB_ENTITY": "team a", "WANDB_PROJECT": "bert", "WANDB_RUN_ID": "x1"}


@pytest.mark.parametrize(
    ("given_by_the_job", "links"),
    [
        ({}, {}),
        (MLFLOW, {"MLflow": "https://mlflow.example.com/#/runs/5e6663ce"}),
        (
            {**MLFLOW, "MLFLOW_EXPERIMENT_ID": "12"},
            {"MLflow": "https://mlflow.example.com/#/experiments/12/runs/5e6663ce"},
        ),
        ({**MLFLOW, "MLFLOW_EXPERIMENT_ID": "1/../x"}, {"MLflow": "https://mlflow.example.com/#/runs/5e6663ce"}),
        ({**MLFLOW, "MLFLOW_RUN_ID": "a/b"}, {}),
        ({**MLFLOW, "MLFLOW_TRACKING_URI": "http://mlflow.example.com"}, {}),
        ({**MLFLOW, "MLFLOW_TRACKING_URI": "arn:aws:sagemaker:eu-west-1:111122223333:mlflow-tracking-server/a"}, {}),
        ({**MLFLOW, "MLFLOW_TRACKING_URI": "databricks"}, {}),
        ({**MLFLOW, "MLFLOW_TRACKING_URI": "https://user:secret@mlflow.example.com"}, {}),
        (WANDB, {"Weights & Biases": "https://wandb.ai/team%20a/bert/runs/x1"}),
        (
            {**WANDB, "WANDB_BASE_URL": "https://api.wandb.ai"},
            {"Weights & Biases": "https://wandb.ai/team%20a/bert/runs/x1"},
        ),
        (
            {**WANDB, "WANDB_BASE_URL": "https://wandb.corp:8443"},
            {"Weights & Biases": "https://wandb.corp:8443/team%20a/bert/runs/x1"},
        ),
        ({"WANDB_PROJECT": "bert", "WANDB_RUN_ID": "x1"}, {}),
        ({"MLFLOW_TRACKING_TOKEN": "secret", "WANDB_API_KEY": "secret"}, {}),
    ],
)
def test_only_complete_links_are_made(given_by_the_job: Mapping[str, str], links: Mapping[str, str]) -> None:
    assert run_links([{}, given_by_the_job]) == links


def test_first_source_with_a_value_is_used_for_a_link() -> None:
    sources = [{"MLFLOW_RUN_ID": "tag"}, {"MLFLOW_RUN_ID": "env", **WANDB}, {"MLFLOW_TRACKING_URI": '"https://m"'}]
    assert run_links(sources)["MLflow"] == "https://m/#/runs/tag"


@pytest.mark.parametrize(
    ("tag", "link"),
    [
        ("https://runs.example.com/a/b", "https://runs.example.com/a/b"),
        ("https://runs.example.com/=23/runs/7", "https://runs.example.com/#/runs/7"),
        ("runs.example.com", None),
    ],
)
def test_given_a_page_in_a_tag_when_read_then_escapes_are_signs(tag: str, link: str | None) -> None:
    assert run_pages({"trainguard:run-url": tag}).get("run") == link


@pytest.mark.parametrize(
    "link",
    [
        "javascript:alert(1)",
        "http://a.example",
        "https://",
        "https:///a",
        "https://a b",
        "https://a/\n",
        "https://a\r\nBcc: x",
        "https://a/<script>",
        'https://a/"onclick=x',
        "https://a/[x](y)",
        "https://a/*bold*",
        "https://a@evil.example",
        "https://a/@channel",
        "https://\u0430pple.com",
        "https://a/\u202e",
        "https://a.",
        "https://a:999999/",
        "https://a/\\b",
        " https://a",
        "https://a/" + "x" * LONGEST_LINK,
    ],
    ids=lambda link: repr(link)[:30],
)
def test_given_any_other_link_when_asked_then_it_is_not_shown(link: str) -> None:
    assert not is_plain_link(link)
    assert plain_links({"run": link, "MLflow": "https://a", "other": "https://b"}) == {"MLflow": "https://a"}


def test_given_the_longest_link_when_asked_then_it_is_shown() -> None:
    link = "https://a/" + "x" * (LONGEST_LINK - len("https://a/"))
    assert is_plain_link(link)


@given(st.text(max_size=60))
def test_any_passed_text_is_ascii_without_markup(text: str) -> None:
    link = f"https://a/{text}"
    if is_plain_link(link):
        assert link.isascii()
        assert not set(link) & set("<>\"'()[]{}*!@`|\\^ \n")


def test_run_link_is_the_one_of_mlflow() -> None:
    assert mlflow_run_of(run_links([MLFLOW])) == "5e6663ce"
    assert mlflow_run_of(run_links([WANDB])) is None
