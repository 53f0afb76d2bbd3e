"""Reports: from state when a rule fires, and in full at a job's end or on request."""

from functools import partial

from constructs import Construct

from infra.constructs import report_machine
from infra.constructs.function import Platform, TrainGuardFunction
from infra.constructs.policy import allow
from infra.constructs.state_machine import state_machine
from trainguard.engine.training.family import TRAINING_HEALTH
from trainguard.hangs.files import HANG_READS, KEPT_HANG

_REPORTS = "*/rule-output/TrainGuardReport/"
_PARTS = f"{_REPORTS}parts/*"
_KEYS = f"{_PARTS}/keys/*"
_RUN_PART = f"{_PARTS}/training.json"
_LISTED = (_PARTS, *HANG_READS)
_READ_BY_DIGESTS = ("*/profiler-output/*", *TRAINING_HEALTH.reads, _KEYS, _RUN_PART)


class Reports(Construct):
    """Three functions, and the state machine that makes reports of them; `record_fire` says where a fire's lies."""

    def __init__(self, scope: Construct, platform: Platform, record_fire: TrainGuardFunction) -> None:
        super().__init__(scope, "Reports")
        function = partial(TrainGuardFunction, self, platform=platform)
        storage = platform.storage
        bucket, tables = storage.bucket_arn, storage.variables("JOBS_TABLE", "NODE_STATE_TABLE")
        read_job = [
            allow("ReadJob", ["dynamodb:GetItem"], [storage.jobs.table_arn]),
            allow("ReadState", ["dynamodb:Query"], [storage.node_state.table_arn]),
        ]
        plan_report = function(
            "plan_report",
            statements=[
                *read_job,
                allow("ListHours", ["s3:ListBucket"], [bucket]),
                allow("WriteItems", ["s3:PutObject"], [f"{bucket}/{_PARTS}"]),
            ],
            environment=tables,
            timeout_s=300,
            memory_mib=platform.config.plan_report_memory_mb,
        )
        digest_profile = function(
            "digest_profile",
            statements=[
                allow("ReadProfileObjects", ["s3:GetObject"], [f"{bucket}/{objects}" for objects in _READ_BY_DIGESTS]),
                allow("ListProfileObjects", ["s3:ListBucket"], [bucket]),
                allow("WriteParts", ["s3:PutObject"], [f"{bucket}/{_PARTS}"]),
            ],
            timeout_s=900,
            memory_mib=platform.config.report_memory_mb,
        )
        build_report = function(
            "build_report",
            statements=[
                *read_job,
                allow("WriteReport", ["s3:PutObject"], [f"{bucket}/{_REPORTS}*"]),
                allow("ReadAndDeleteParts", ["s3:GetObject", "s3:DeleteObject"], [f"{bucket}/{_PARTS}"]),
                allow("ReadDumps", ["s3:GetObject"], [f"{bucket}/{keys}" for keys in (*HANG_READS, KEPT_HANG)]),
                allow("ListPartsAndDumps", ["s3:ListBucket"], [bucket], {"StringLike": {"s3:prefix": list(_LISTED)}}),
            ],
            environment=tables,
            timeout_s=600,
            memory_mib=platform.config.report_memory_mb,
        )
        self.functions = (plan_report, digest_profile, build_report)
        self.state_machine_arn = state_machine(
            self,
            report_machine.REPORT,
            platform=platform,
            definition=report_machine.definition(),
            functions=(*self.functions, record_fire),
            substitutions={f"{state}Arn": build_report.arn for state in ("BuildFromState", "DropParts")},
            statements=[allow("ReadItems", ["s3:GetObject"], [f"{bucket}/{_PARTS}"])],
            map_label=report_machine.MAP_LABEL,
        ).attr_arn
