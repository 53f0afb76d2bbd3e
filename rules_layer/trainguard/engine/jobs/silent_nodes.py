"""Whether all nodes of a job outside SageMaker have ended, or died: what the collector's status objects say."""

from trainguard.layout import ProfileRoot
from trainguard.ports import ProfileObjects

SILENT_S = 600.0
"""A node writes its status object each minute and when it ends; the collector uses the same limit."""

_SUFFIX = ".status.json"


def are_all_silent(objects: ProfileObjects, bucket: str, root: ProfileRoot, now: float) -> bool:
    """Whether the job has status objects of nodes, and none was written in the last ten minutes before ``now``.

    Then each node has ended or is gone, and no other will end the job. Raises PortUnavailableError.
    """
    found = False
    for each in objects.list(bucket, root.collector, ""):
        if each.key.endswith(_SUFFIX):
            if now - each.last_modified < SILENT_S:
                return False
            found = True
    return found
