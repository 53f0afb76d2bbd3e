"""The CDK application of the central stack: ``cdk deploy --app ".venv/bin/python -m infra.central"``."""

from collections.abc import Mapping

from aws_cdk.cx_api import CloudAssembly

from infra import overlay
from infra.app import new_app, write
from infra.central.stack import CentralStack
from infra.config import DeploymentConfig, DeploymentConfigError


def synthesise(outdir: str | None = None, context: Mapping[str, object] | None = None) -> CloudAssembly:
    """Write the cloud assembly and return it; raises DeploymentConfigError, UnacknowledgedFindingError."""
    app = new_app(outdir, context)
    given = app.node.get_all_context()
    config = DeploymentConfig.from_context({"stack_name": "TrainGuardCentral", **given})
    if config.organization_id is None:
        raise DeploymentConfigError(["organization_id is missing: a central stack admits one organisation's accounts"])
    CentralStack(app, config.stack_name, config=config, overlay=overlay.chosen(config))
    return write(app, judged=not config.emulator)


if __name__ == "__main__":
    synthesise()
