"""Whose a job is: which tag counts, what of its value is kept, which settings name others."""

from collections.abc import Mapping

import pytest

from trainguard.engine.settings.job_settings import resolve
from trainguard.engine.settings.sources import read_document, tag_source
from trainguard.engine.settings.tag_names import LONGEST_OWNER, MOST_TAGS, owners_of, read_tag_names

ARN = "arn:aws:sagemaker:eu-west-1:111122223333"


@pytest.mark.parametrize(
    ("tags", "owners"),
    [
        ({}, {}),
        ({"Team": "nlp", "PROJECT": "search"}, {"team": "nlp", "project": "search"}),
        ({"owner": "second", "user": "first"}, {"user": "first"}),
        ({"owner": "theirs", "trainguard:user": "ours"}, {"user": "ours"}),
        ({"user": "  ", "owner": "ann"}, {"user": "ann"}),
        (
            {"sagemaker:user-profile-arn": f"{ARN}:user-profile/d-1/ann"},
            {"user": "ann"},
        ),
        ({"user": "arn:aws:iam::111122223333:user/"}, {}),
        ({"teams": "nlp", "name": "x"}, {}),
    ],
)
def test_first_matching_tag_names_each_owner(tags: Mapping[str, str], owners: Mapping[str, str]) -> None:
    assert owners_of(tags, {}) == owners


def test_order_of_two_spellings_of_a_tag_does_not_matter() -> None:
    tags = {"team": "low", "TEAM": "high"}
    assert owners_of(tags, {}) == owners_of(dict(reversed(tags.items())), {}) == {"team": "high"}


def test_given_tag_names_replace_the_defaults() -> None:
    tags = {"user": "ann", "CostOwner": "bob", "team": "nlp"}
    assert owners_of(tags, {"user": ("costowner",), "team": ()}) == {"user": "bob"}


def test_hostile_owner_value_is_bounded_and_on_one_line() -> None:
    found = owners_of({"user": "a\r\nb\u202e" + "x" * 500}, {})["user"]
    assert len(found) == LONGEST_OWNER
    assert found.startswith("a b\\u202e")
    assert found.isprintable()


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("owner, team owner", ("owner", "team")),
        ("none", ()),
        ("", None),
        ("x" * 128, ("x" * 128,)),
        ("x" * 129, None),
        (" ".join(map(str, range(MOST_TAGS))), tuple(map(str, range(MOST_TAGS)))),
        (" ".join(map(str, range(MOST_TAGS + 1))), None),
    ],
    ids=["several", "none", "empty", "longest", "too-long", "most", "too-many"],
)
def test_given_names_of_tags_when_read_then_they_are_bounded(text: str, names: tuple[str, ...] | None) -> None:
    assert read_tag_names(text) == names


def test_names_from_a_tag_override_those_of_a_document() -> None:
    document = read_document("default", '{"owners": {"user": ["login"], "team": ["squad", "tribe"]}}')
    both = resolve("job", [tag_source({"trainguard:user-tags": "login-name"}), document], asked=True)
    assert both.owner_tags == {"user": ("login-name",), "team": ("squad", "tribe")}
    assert both.faults == ()


def test_unusable_owner_names_are_a_fault_and_do_not_bar_stops() -> None:
    found = resolve("job", [read_document("default", '{"owners": {"users": ["x"]}, "team-tags": ""}')], asked=True)
    assert [str(fault).partition(",")[0] for fault in found.faults] == [
        "default: owners.users is '[\"x\"]'",
        "default: team-tags is ''",
    ]
    assert found.policy.stops.may_stop("LowGPUUtilization")


def test_tags_that_name_owners_are_no_settings() -> None:
    assert tag_source({"trainguard:user": "ann", "trainguard:team": "nlp", "trainguard:project": "x"}).parameters == {}
