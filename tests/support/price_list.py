"""Products of the AWS Price List in the documented form ``aws_v1``, and a client that answers with them."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from botocore.session import get_session
from botocore.stub import Stubber

from trainguard.aws.clients import Clients


def product(attributes: dict[str, str], price: str | None, *, currency: str = "USD", unit: str = "Hrs") -> str:
    """Return a product as GetProducts has it: a JSON document in a string."""
    sku = "ABCDEFGHIJKLMNOP"
    dimension = {
        "unit": unit,
        "endRange": "Inf",
        "beginRange": "0",
        "description": f"{price} an hour",
        "appliesTo": [],
        "rateCode": f"{sku}.JRTCKXETXF.6YS6EN2CT7",
        "pricePerUnit": {} if price is None else {currency: price},
    }
    term = {
        "priceDimensions": {f"{sku}.JRTCKXETXF.6YS6EN2CT7": dimension},
        "sku": sku,
        "effectiveDate": "2026-11-01T00:00:00Z",
        "offerTermCode": "JRTCKXETXF",
        "termAttributes": {},
    }
    return json.dumps(
        {
            "product": {"productFamily": "ML Instance", "attributes": attributes, "sku": sku},
            "serviceCode": "AmazonSageMaker",
            "terms": {"OnDemand": {f"{sku}.JRTCKXETXF": term}},
            "version": "20261101000000",
            "publicationDate": "2026-11-01T00:00:00Z",
        }
    )


def training(name: str, price: str | None, usage: str | None = None, **more: Any) -> str:
    """Return a training instance as a product."""
    attributes = {"instanceName": name, "component": "Training", "regionCode": "us-east-1", "vCpu": "192"}
    return product({**attributes, "usagetype": usage or f"USE1-Train:{name}"}, price, **more)


def on_ec2(name: str, price: str | None, gpu: str | None = None) -> str:
    """Return an instance of EC2 as a product."""
    attributes = {"instanceType": name, "regionCode": "us-east-1", "usagetype": f"BoxUsage:{name}", "vcpu": "192"}
    return product(attributes if gpu is None else {**attributes, "gpu": gpu}, price)


def filters(region: str, **of_offer: str) -> list[dict[str, str]]:
    """Return the filters of a request, the Region's last."""
    return [
        {"Type": "TERM_MATCH", "Field": name, "Value": value}
        for name, value in {**of_offer, "regionCode": region}.items()
    ]


SAGEMAKER_FILTERS = {"productFamily": "ML Instance", "component": "Training"}
EC2_FILTERS = {
    "operatingSystem": "Linux",
    "tenancy": "Shared",
    "capacitystatus": "Used",
    "preInstalledSw": "NA",
    "licenseModel": "No License required",
}


@contextmanager
def price_list(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stubber]:
    """Put a stub in place of the price list; it holds every request against the service's own model."""
    session = get_session()
    client = session.create_client(
        "pricing", region_name="us-east-1", aws_access_key_id="testing", aws_secret_access_key="testing"
    )
    monkeypatch.setattr(Clients, "pricing", client)
    with Stubber(client) as stub:
        yield stub


def answer(stub: Stubber, service: str, region: str, of_offer: dict[str, str], pages: Sequence[Sequence[str]]) -> None:
    """Expect the requests of an offer, page by page."""
    for number, page in enumerate(pages):
        request: dict[str, Any] = {
            "ServiceCode": service,
            "Filters": filters(region, **of_offer),
            "FormatVersion": "aws_v1",
            "MaxResults": 100,
        }
        if number:
            request["NextToken"] = f"page-{number}"
        said: dict[str, Any] = {"FormatVersion": "aws_v1", "PriceList": list(page)}
        if number + 1 < len(pages):
            said["NextToken"] = f"page-{number + 1}"
        stub.add_response("get_products", said, request)
