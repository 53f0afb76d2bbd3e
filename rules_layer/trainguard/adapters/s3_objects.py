"""Profile objects and reports in S3."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from trainguard.adapters.aws_errors import error_code, translated
from trainguard.errors import ObjectMissingError, PortUnavailableError
from trainguard.ports import ListedObject

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import ListObjectsV2RequestTypeDef, ObjectIdentifierTypeDef

DELETE_BATCH_SIZE = 1_000

_SERVICE = "S3"


class S3ProfileObjects:
    """The objects of a bucket.

    Parameters
    ----------
    client : S3Client
        Low-level client.
    """

    def __init__(self, *, client: "S3Client") -> None:
        self._client = client

    def get(self, bucket: str, key: str, max_bytes: int) -> bytes:
        """Return the object's bytes, at most ``max_bytes + 1`` of them.

        The body is read as a stream and dropped after that many bytes: a Range header would do the same, but S3 answers
        416 to any range of an empty object.
        """
        with translated(_SERVICE, "GetObject"):
            try:
                body = self._client.get_object(Bucket=bucket, Key=key)["Body"]
            except ClientError as error:
                if error_code(error) in {"NoSuchKey", "404"}:
                    raise ObjectMissingError(bucket, key) from error
                raise
            with body:
                return body.read(max_bytes + 1)

    def list(self, bucket: str, prefix: str, start_after: str) -> Iterator[ListedObject]:
        """Iterate over the keys under ``prefix`` greater than ``start_after``, in UTF-8 order, page by page."""
        request: ListObjectsV2RequestTypeDef = {"Bucket": bucket, "Prefix": prefix}
        if start_after:
            request["StartAfter"] = start_after
        while True:
            with translated(_SERVICE, "ListObjectsV2"):
                page = self._client.list_objects_v2(**request)
            for entry in page.get("Contents", []):
                yield ListedObject(entry["Key"], entry["LastModified"].timestamp(), entry["Size"])
            if not page["IsTruncated"]:
                return
            request["ContinuationToken"] = page["NextContinuationToken"]

    def put(self, bucket: str, key: str, body: bytes, content_type: str) -> None:
        """Write an object whole."""
        with translated(_SERVICE, "PutObject"):
            self._client.put_object(Bucket=bucket, Key=key, Body=body, ContentType=content_type)

    def folders(self, bucket: str, prefix: str) -> Iterator[str]:
        """Iterate over the names of the folders directly under ``prefix``, page by page."""
        request: ListObjectsV2RequestTypeDef = {"Bucket": bucket, "Prefix": prefix, "Delimiter": "/"}
        while True:
            with translated(_SERVICE, "ListObjectsV2"):
                page = self._client.list_objects_v2(**request)
            for folder in page.get("CommonPrefixes", []):
                yield folder["Prefix"].removeprefix(prefix).removesuffix("/")
            if not page["IsTruncated"]:
                return
            request["ContinuationToken"] = page["NextContinuationToken"]

    def delete(self, bucket: str, keys: Sequence[str]) -> None:
        """Delete objects, a thousand in a request."""
        for start in range(0, len(keys), DELETE_BATCH_SIZE):
            doomed: list[ObjectIdentifierTypeDef] = [{"Key": key} for key in keys[start : start + DELETE_BATCH_SIZE]]
            with translated(_SERVICE, "DeleteObjects"):
                answer = self._client.delete_objects(Bucket=bucket, Delete={"Objects": doomed, "Quiet": True})
            for kept in answer.get("Errors", []):
                raise PortUnavailableError(_SERVICE, "DeleteObjects", f"{kept.get('Key')}: {kept.get('Code')}")
