"""A folder or an ``s3://`` URI to the profile there. What reads S3 is imported only where a place is in S3."""

from typing import TYPE_CHECKING

from trainguard.local.sources import ProfileSource, open_folder

if TYPE_CHECKING:
    from trainguard.adapters.clients import Clients

S3 = "s3://"


def open_place(place: str, clients: "Clients | None" = None) -> ProfileSource:
    """Find the profile at a place.

    Parameters
    ----------
    place : str
        A folder, or ``s3://bucket/prefix``.
    clients : Clients, optional
        With which S3 is read; by default with the credentials and the Region of the environment.

    Raises
    ------
    ProfileSourceError, NoProfileError
        When no single profile is there.
    """
    if not place.startswith(S3):
        return open_folder(place)
    from trainguard.local.bucket import open_bucket

    return open_bucket(place, clients)
