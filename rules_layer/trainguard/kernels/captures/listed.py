"""The objects of a folder among which the traces of its captures are."""

from dataclasses import dataclass

from trainguard.kernels.captures.keys import is_shared
from trainguard.ports import ListedObject, ProfileObjects

MOST_LISTED = 50_000
"""Objects of a folder that are looked at; traces behind them are in no capture, which is counted."""

PASSED_OVER = 1_000
"""Objects of a folder in the folder, whose traces are in other captures, that are looked at before it is skipped."""

_LAST = "\U0010ffff"


@dataclass(frozen=True, slots=True)
class ListedFolder:
    """What a folder holds for its captures; ``is_cut`` says that there are more objects than are looked at."""

    objects: list[ListedObject]
    is_cut: bool


def listed_folder(objects: ProfileObjects, bucket: str, folder: str) -> ListedFolder:
    """List a folder, which ends in a slash, without the folders in it that are of other captures.

    A job's own folder holds all that the job writes: profiles, checkpoints, models.

    Raises
    ------
    PortUnavailableError
        When S3 did not answer.
    """
    found: list[ListedObject] = []
    looked_at, after = 0, ""
    while True:
        passed, inside = 0, ""
        for each in objects.list(bucket, folder, after):
            if looked_at == MOST_LISTED:
                return ListedFolder(found, is_cut=True)
            looked_at += 1
            part, slash, _ = each.key.removeprefix(folder).partition("/")
            if not slash or not is_shared(part):
                found.append(each)
                continue
            passed = passed + 1 if part == inside else 1
            inside, behind = part, f"{folder}{part}/{_LAST}"
            if passed >= PASSED_OVER and each.key < behind:
                after = behind
                break
        else:
            return ListedFolder(found, is_cut=False)
