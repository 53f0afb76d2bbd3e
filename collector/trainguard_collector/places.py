"""Where objects are written: a folder, or a bucket of S3."""

import os
import shutil
from pathlib import Path
from typing import Any, BinaryIO, Optional, Protocol, Union

# A file is not held in memory.
Body = Union[bytes, BinaryIO]


class Place(Protocol):
    """Keeps objects under keys below the output; each method raises when the place cannot be reached."""

    def put(self, key: str, body: Body) -> None:
        """Write an object, whole or not at all."""

    def get(self, key: str) -> Optional[bytes]:
        """Return an object; None when there is none."""

    def keys(self, prefix: str) -> list[str]:
        """Return the keys that begin with ``prefix``, which ends in a slash."""

    def delete(self, key: str) -> None:
        """Delete an object, if it is there."""


class Folder:
    """A folder, for example on a file system that the nodes share."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)

    def put(self, key: str, body: Body) -> None:
        target = self._path / key
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = target.with_name(f".{target.name}.{os.getpid()}.tmp")
        try:
            if isinstance(body, bytes):
                draft.write_bytes(body)
            else:
                with draft.open("wb") as file:
                    shutil.copyfileobj(body, file)
            draft.replace(target)
        except OSError:
            draft.unlink(missing_ok=True)
            raise

    def get(self, key: str) -> Optional[bytes]:
        try:
            return (self._path / key).read_bytes()
        except FileNotFoundError:
            return None

    def keys(self, prefix: str) -> list[str]:
        folder = self._path / prefix
        return sorted(f"{prefix}{path.name}" for path in folder.glob("*.json")) if folder.is_dir() else []

    def delete(self, key: str) -> None:
        (self._path / key).unlink(missing_ok=True)


class Bucket:
    """A prefix of a bucket; boto3 is imported here and nowhere else."""

    def __init__(self, place: str, client: Any = None) -> None:
        self._bucket, _, prefix = place[len("s3://") :].partition("/")
        self._prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        if client is None:
            import boto3  # an extra, and only the sampler's process has it
            from botocore.config import Config

            limits = Config(connect_timeout=5, read_timeout=15, retries={"mode": "standard", "max_attempts": 2})
            client = boto3.client("s3", config=limits)
        self._client = client

    def put(self, key: str, body: Body) -> None:
        self._client.put_object(Bucket=self._bucket, Key=f"{self._prefix}{key}", Body=body)

    def get(self, key: str) -> Optional[bytes]:
        try:
            found = self._client.get_object(Bucket=self._bucket, Key=f"{self._prefix}{key}")
        except self._client.exceptions.NoSuchKey:
            return None
        body: bytes = found["Body"].read()
        return body

    def keys(self, prefix: str) -> list[str]:
        pages = self._client.get_paginator("list_objects_v2").paginate(
            Bucket=self._bucket, Prefix=f"{self._prefix}{prefix}"
        )
        return [found["Key"][len(self._prefix) :] for page in pages for found in page.get("Contents", ())]

    def delete(self, key: str) -> None:
        self._client.delete_object(Bucket=self._bucket, Key=f"{self._prefix}{key}")


def open_place(output: str) -> Place:
    """Return the place that ``output`` names; raises ImportError when it is in S3 and boto3 is not installed."""
    return Bucket(output) if output.startswith("s3://") else Folder(output)


def send_file(place: Place, key: str, path: Path) -> bool:
    """Write an object from a file and delete the file; False where it is gone, as its writer has made room."""
    try:
        body = path.open("rb")
    except FileNotFoundError:
        return False
    with body:
        place.put(key, body)
    path.unlink(missing_ok=True)
    return True
