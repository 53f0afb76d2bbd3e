"""``trainguard doctor``."""

import time
from typing import Annotated

from trainguard.cli.command import command
from trainguard.cli.options import Where, job_option, option


@command(loads_rules=("rules_package",))
def doctor(
    *,
    job: Annotated[str | None, job_option("Examine this training job too.")] = None,
    bucket: Annotated[str | None, option("--bucket", "NAME", "A bucket; else the stack's own.")] = None,
    where: Where,
    as_json: bool,
) -> int:
    """Check the deployed stack: what works, what does not, and what to do.

    It only reads. Exit code 0: no check failed; there may be warnings. 1: a check failed. 2: it could not run.

    Examples: `trainguard doctor`, `trainguard doctor --job my-job`, `trainguard doctor --region eu-west-1 --json`
    """
    from trainguard.cli.doctor.diagnosis import diagnose, printed, refuse_name, unfound
    from trainguard.cli.doctor.site import CheckLevel, Site
    from trainguard.cli.output.result import FIRED, RAN, REFUSED
    from trainguard.cli.services.deployment import find_deployment
    from trainguard.core.errors import TrainGuardError

    refuse_name(job)
    about = {"stack": where.stack, "region": where.region, "account": None, "job": job, "bucket": bucket}
    try:
        deployment = find_deployment(where)
    except TrainGuardError as fault:
        printed([unfound(fault)], {**about, "examined": False}, as_json=as_json)
        return REFUSED
    site = Site(deployment, now=time.time(), profile=where.profile, bucket=bucket)
    about |= {"region": deployment.region, "account": deployment.account}
    found = printed(diagnose(site, job), {**about, "examined": True}, as_json=as_json)
    return FIRED if any(result.level is CheckLevel.FAIL for result in found) else RAN
