"""Writers of other accounts: what the bucket's policy lets them do, asked as IAM is asked, and what it does not."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from infra.config import MOST_WRITER_ACCOUNTS
from tests.infra.access import Request, applies
from tests.infra.template import Statement, Template
from tests.infra.variants import CHINA_KEY, WRITERS

OURS = "{AWS::AccountId}"
THEIRS, OTHERS = WRITERS
BUCKET = "{StorageProfiles.Arn}"
POLICY = "StorageProfilesPolicy"
MINUTE = "resnet50/profiler-output/system/incremental/2026073109/1785488400.algo-1.json"

SSE = "s3:x-amz-server-side-encryption"
KEY_ID = f"{SSE}-aws-kms-key-id"
SSE_C = f"{SSE}-customer-algorithm"
THEIR_KEY = "arn:aws-cn:kms:cn-north-1:444455556666:key/0b6a1f0e-5f4c-4c53-9a9f-7d1c1f1f8d10"


@pytest.fixture(scope="module")
def plain(variants: Path) -> Template:
    return Template(variants / "writers" / "TrainGuard.template.json")


@pytest.fixture(scope="module")
def keyed(variants: Path) -> Template:
    return Template(variants / "writers-and-key" / "TrainGuard.template.json")


def concerning(template: Template, account: str) -> Iterator[Statement]:
    """Yield the statements of the bucket's policy about an account's principals."""
    for name, statement, principal in template.resource_policy_statements():
        named = {"AWS": f"arn:{{AWS::Partition}}:iam::{account}:root"}
        if name == POLICY and principal in ({"AWS": "*"}, named):
            yield statement


def effects(template: Template, account: str, action: str, key: str, headers: dict[str, str]) -> set[str]:
    """Return what the bucket's policy says to a request of an account's role: Allow, Deny, both or nothing."""
    given = {"aws:PrincipalAccount": account, "aws:SecureTransport": "true", **headers}
    request = Request(action, f"{BUCKET}/{key}" if key else BUCKET, tuple(given.items()))
    return {statement.effect for statement in concerning(template, account) if applies(statement, request)}


def may(template: Template, account: str, key: str, *, action: str = "s3:PutObject", **headers: str) -> bool:
    """Say whether the bucket lets a role of another account, whose own policy allows all, do that to an object."""
    return effects(template, account, action, key, headers) == {"Allow"}


@pytest.mark.parametrize(
    "key",
    [
        f"{THEIRS}/{MINUTE}",
        f"{THEIRS}/team/vision/{MINUTE}",
        f"{THEIRS}/resnet50/profiler-output/framework/training_job_end.ts",
        f"{THEIRS}/resnet50/job.json",
        f"{THEIRS}/resnet50/hang-dumps/algo-1/2026-07-31T09-00-00Z/nccl_trace_rank_12.gz",
        f"{THEIRS}/resnet50/debug-output/index/000000000/000000000005_worker_0.json",
        f"{THEIRS}/resnet50/tensorboard-output/events.out.tfevents.1.host",
    ],
)
def test_listed_account_may_write_below_its_prefix(plain: Template, keyed: Template, key: str) -> None:
    assert may(plain, THEIRS, key)
    assert may(keyed, THEIRS, key)


@pytest.mark.parametrize(
    "key",
    [
        MINUTE,
        f"{OTHERS}/{MINUTE}",
        f"x/{THEIRS}/{MINUTE}",
        f"{THEIRS}x/{MINUTE}",
        f"{THEIRS}/model.tar.gz",
        f"{THEIRS}/job.json",
        f"{THEIRS}/profiler-output/system/incremental/2026080106/1785564000.algo-1.json",
        f"{THEIRS}/resnet50/checkpoints/model.bin",
        f"{THEIRS}/resnet50/rule-output/TrainGuardReport/report.html",
        f"{THEIRS}/resnet50/rule-output/TrainGuardReport/parts/profiler-output/x.json",
        f"{THEIRS}/resnet50/rule-output/TrainGuardReport/parts/1/keys/job.json",
        f"{THEIRS}/trainguard-canary-20260801/profiler-output/system/incremental/2026080106/1785564000.algo-1.json",
        f"{THEIRS}/x/trainguard-canary-20260801/job.json",
        "trainguard-canary-20260801/job.json",
    ],
)
def test_listed_account_may_not_write_elsewhere(plain: Template, key: str) -> None:
    assert not may(plain, THEIRS, key)


@pytest.mark.parametrize("key", [f"{THEIRS}/{MINUTE}", MINUTE])
def test_unlisted_account_may_not_write(plain: Template, key: str) -> None:
    assert not may(plain, "222233334444", key)


@pytest.mark.parametrize(
    ("action", "key"),
    [
        ("s3:GetObject", f"{THEIRS}/{MINUTE}"),
        ("s3:DeleteObject", f"{THEIRS}/{MINUTE}"),
        ("s3:PutObjectAcl", f"{THEIRS}/{MINUTE}"),
        ("s3:PutObjectTagging", f"{THEIRS}/{MINUTE}"),
        ("s3:ListBucket", ""),
        ("s3:PutBucketPolicy", ""),
        ("s3:PutLifecycleConfiguration", ""),
    ],
)
def test_listed_account_may_only_put(plain: Template, action: str, key: str) -> None:
    assert not may(plain, THEIRS, key, action=action)


def test_listed_account_may_not_write_without_tls(plain: Template) -> None:
    assert not may(plain, THEIRS, f"{THEIRS}/{MINUTE}", **{"aws:SecureTransport": "false"})


@pytest.mark.parametrize(
    ("headers", "without_key", "with_key"),
    [
        ({}, True, True),
        ({SSE: "AES256"}, True, False),
        ({SSE: "aws:kms"}, False, False),
        ({SSE: "aws:kms", KEY_ID: THEIR_KEY}, False, False),
        ({SSE: "aws:kms:dsse", KEY_ID: THEIR_KEY}, False, False),
        ({SSE: "aws:kms", KEY_ID: CHINA_KEY}, False, True),
        ({SSE_C: "AES256"}, False, False),
    ],
)
def test_object_unreadable_here_is_refused_from_a_listed_account(
    plain: Template, keyed: Template, headers: dict[str, str], without_key: bool, with_key: bool
) -> None:
    key = f"{THEIRS}/{MINUTE}"
    assert may(plain, THEIRS, key, **headers) == without_key
    assert may(keyed, THEIRS, key, **headers) == with_key


@pytest.mark.parametrize(
    ("key", "headers"),
    [
        ("resnet50/rule-output/TrainGuardReport/report.html", {}),
        ("trainguard-canary-20260801/job.json", {}),
        (MINUTE, {SSE: "aws:kms"}),
    ],
)
def test_role_of_this_account_is_not_denied_writing(plain: Template, key: str, headers: dict[str, str]) -> None:
    """Not even where the account lists itself."""
    assert effects(plain, OURS, "s3:PutObject", key, headers) == set()
    assert effects(plain, "222233334444", "s3:PutObject", f"x/{key}", headers) == {"Deny"}


def test_objects_of_other_accounts_belong_to_this_one(
    plain: Template,
) -> None:
    bucket = plain.one("AWS::S3::Bucket", "StorageProfiles")
    assert bucket["OwnershipControls"] == {"Rules": [{"ObjectOwnership": "BucketOwnerEnforced"}]}


def test_bucket_policy_without_listed_accounts_admits_nobody(template: Template) -> None:
    effects = [entry.effect for name, entry, _ in template.resource_policy_statements() if name == POLICY]
    assert effects == ["Deny"]


def test_policy_of_the_most_accounts_is_within_the_s3_limit(
    plain: Template,
) -> None:
    (policy,) = (each for each in plain.resources if each.type == "AWS::S3::BucketPolicy")
    document: dict[str, Any] = dict(policy.properties["PolicyDocument"])
    mine = [each for each in document["Statement"] if each.get("Sid") == f"WriteProfilesOf{THEIRS}"]
    rest = [each for each in document["Statement"] if not str(each.get("Sid")).startswith("WriteProfilesOf")]
    text = json.dumps({**document, "Statement": [*rest, *(mine * MOST_WRITER_ACCOUNTS)]}, separators=(",", ":"))
    longest = text.replace(BUCKET, "arn:aws-us-gov:s3:::" + "b" * 63).replace("{AWS::Partition}", "aws-us-gov")
    assert len(longest) <= 20 * 1024
