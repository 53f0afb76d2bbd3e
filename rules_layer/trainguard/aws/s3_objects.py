"""Profile objects and reports in S3."""

from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from trainguard.aws.aws_errors import error_code, translated
from trainguard.core.errors import ObjectMissingError, PortUnavailableError
from trainguard.core.ports import ListedObject, check_range

if TYPE_CHECKING:
    from botocore.response import StreamingBody
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import (
        ListObjectsV2OutputTypeDef,
        ListObjectsV2RequestPaginateTypeDef,
        ObjectIdentifierTypeDef,
    )

DELETE_BATCH_SIZE = 1_000

_SERVICE = "S3"


class S3ByteStream:
    """An object's body as it arrives, from GetObject's StreamingBody."""

    def __init__(self, body: "StreamingBody") -> None:
        self._body = body

    def read(self, size: int, /) -> bytes:
        with translated(_SERVICE, "GetObject"):
            return self._body.read(size)

    def __enter__(self) -> "S3ByteStream":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self._body.close()


class S3ProfileObjects:
    """The objects of a bucket."""

    def __init__(self, *, client: "S3Client") -> None:
        self._client = client

    def get(self, bucket: str, key: str, max_bytes: int) -> bytes:
        """Return at most ``max_bytes + 1`` bytes of a stream: S3 answers 416 to any range of an empty object."""
        with self.open_stream(bucket, key) as body:
            return body.read(max_bytes + 1)

    def get_range(self, bucket: str, key: str, start: int, length: int) -> bytes:
        """Return up to ``length`` bytes from offset ``start`` on; S3 answers 416 beyond the end."""
        check_range(start, length)
        with translated(_SERVICE, "GetObject"):
            try:
                answer = self._client.get_object(Bucket=bucket, Key=key, Range=f"bytes={start}-{start + length - 1}")
            except ClientError as error:
                if error_code(error) in {"InvalidRange", "416"}:
                    return b""
                _refuse_missing(error, bucket, key)
                raise
            with answer["Body"] as body:
                return body.read(length)

    def open_stream(self, bucket: str, key: str) -> "S3ByteStream":
        with translated(_SERVICE, "GetObject"):
            try:
                return S3ByteStream(self._client.get_object(Bucket=bucket, Key=key)["Body"])
            except ClientError as error:
                _refuse_missing(error, bucket, key)
                raise

    def list(self, bucket: str, prefix: str, start_after: str) -> Iterator[ListedObject]:
        request: ListObjectsV2RequestPaginateTypeDef = {"Bucket": bucket, "Prefix": prefix}
        if start_after:
            request["StartAfter"] = start_after
        for page in self._pages(request):
            for entry in page.get("Contents", []):
                yield ListedObject(
                    entry["Key"], entry["LastModified"].timestamp(), entry["Size"], entry.get("ETag", "").strip('"')
                )

    def _pages(self, request: "ListObjectsV2RequestPaginateTypeDef") -> "Iterator[ListObjectsV2OutputTypeDef]":
        with translated(_SERVICE, "ListObjectsV2"):
            yield from self._client.get_paginator("list_objects_v2").paginate(**request)

    def put(self, bucket: str, key: str, body: bytes, content_type: str) -> None:
        with translated(_SERVICE, "PutObject"):
            self._client.put_object(Bucket=bucket, Key=key, Body=body, ContentType=content_type)

    def folders(self, bucket: str, prefix: str) -> Iterator[str]:
        for page in self._pages({"Bucket": bucket, "Prefix": prefix, "Delimiter": "/"}):
            for folder in page.get("CommonPrefixes", []):
                yield folder["Prefix"].removeprefix(prefix).removesuffix("/")

    def delete(self, bucket: str, keys: Sequence[str]) -> None:
        for start in range(0, len(keys), DELETE_BATCH_SIZE):
            doomed: list[ObjectIdentifierTypeDef] = [{"Key": key} for key in keys[start : start + DELETE_BATCH_SIZE]]
            with translated(_SERVICE, "DeleteObjects"):
                answer = self._client.delete_objects(Bucket=bucket, Delete={"Objects": doomed, "Quiet": True})
            for kept in answer.get("Errors", []):
                raise PortUnavailableError(_SERVICE, "DeleteObjects", f"{kept.get('Key')}: {kept.get('Code')}")


def _refuse_missing(error: ClientError, bucket: str, key: str) -> None:
    if error_code(error) in {"NoSuchKey", "404"}:
        raise ObjectMissingError(bucket, key) from error
