"""``trainguard prices update``: the price list of the account's Region as a price table, and what changed."""

import datetime
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
from botocore.session import Session

from trainguard.adapters.aws_errors import translated
from trainguard.adapters.clients import Clients
from trainguard.adapters.price_list import OPERATION, SERVICE, currency_of, endpoint_region, list_products
from trainguard.cli.output.blocks import Block, Column, Grid, Line
from trainguard.cli.output.files import prepare, write_files
from trainguard.cli.output.result import SCHEMA_VERSION, CommandResult, print_result
from trainguard.cli.services.input_files import prices_from
from trainguard.errors import RegionError, RequestError
from trainguard.pricing.price_list import OFFERS, TRAINING, ListedPrices, Offer, read_offer
from trainguard.pricing.table import PriceTable, packaged_prices, write_prices
from trainguard.pricing.update import Changes, changes, updated


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateRequest:
    """Whose prices to read and where to write them; None stands for what this machine is set up for."""

    region: str | None
    out: Path
    profile: str | None = None


class PriceChange(msgspec.Struct, frozen=True, kw_only=True):
    """An instance type whose price is another than before."""

    instance_type: str
    before: float | None
    after: float


class UpdateDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What was written and what changed.

    ``compared_with`` is the file that was there before, or the packaged table; ``kept`` are types that the price list
    does not have, with the price that they had. ``unused`` counts products of the list by why they were not used.
    """

    schema_version: str = SCHEMA_VERSION
    file: str
    region: str
    currency: str
    date: datetime.date
    priced: int
    compared_with: str
    changed: list[PriceChange]
    new: list[str]
    kept: list[str]
    unused: dict[str, int]


def update_command(request: UpdateRequest, *, as_json: bool) -> int:
    """Read and write prices; return the exit code."""
    return print_result(lambda: _result(request), as_json=as_json)


def _result(request: UpdateRequest) -> CommandResult:
    prepare(request.out.parent)
    before = prices_from(request.out) if request.out.exists() else None
    region, clients = _connect(request)
    listed = _listed(clients, region)
    day = datetime.datetime.now(datetime.UTC).date()
    old, packaged = before or packaged_prices(), packaged_prices()
    table = updated(old, packaged, listed, region=region, currency=currency_of(region), day=day)
    write_files(request.out.parent, {request.out.name: write_prices(table)})
    found = changes(old, table, listed)
    against = "the packaged table" if before is None else f"the {request.out} that was there"
    return _outcome(request.out, table, day, old, found, listed, against=against)


def _connect(request: UpdateRequest) -> tuple[str, Clients]:
    """Return the Region whose prices are meant, and clients where its price list is asked for."""
    with translated("AWS", "session"):
        session = Session(profile=request.profile)
        region = request.region or os.environ.get("AWS_REGION") or session.get_config_variable("region")
    if not region:
        raise RegionError(
            "no Region is set", "Pass --region, or set AWS_REGION or the profile's region, for example to us-east-1."
        )
    return region, Clients(session=session, region=endpoint_region(region))


def _listed(clients: Clients, region: str) -> dict[Offer, ListedPrices]:
    with translated(SERVICE, OPERATION):
        client = clients.pricing
    currency = currency_of(region)
    listed = {offer: read_offer(offer, currency, list_products(client, offer, region)) for offer in OFFERS}
    empty = [offer.service for offer, prices in listed.items() if not prices.prices]
    if empty:
        raise RequestError(
            f"the price list has no price of {' and '.join(empty)} in Region {region}; nothing was written",
            "Is the Region's name right, and does it have SageMaker?" if TRAINING.service in empty else "Try it again.",
        )
    return listed


def _outcome(
    file: Path,
    table: PriceTable,
    day: datetime.date,
    old: PriceTable,
    found: Changes,
    listed: Mapping[Offer, ListedPrices],
    *,
    against: str,
) -> CommandResult:
    names: Sequence[str] = [*found.dearer, *found.cheaper]
    changed = [
        PriceChange(instance_type=name, before=old.hourly(name), after=table.hourly(name) or 0.0) for name in names
    ]
    unused: dict[str, int] = {}
    for prices in listed.values():
        for why, amount in prices.unused.items():
            unused[why] = unused.get(why, 0) + amount
    priced = sum(len(prices.prices) for prices in listed.values())
    document = UpdateDocument(
        file=str(file),
        region=table.region,
        currency=table.currency,
        date=day,
        priced=priced,
        compared_with=against,
        changed=changed,
        new=list(found.new),
        kept=list(found.kept),
        unused=unused,
    )
    return CommandResult(document=document, blocks=_blocks(document, len(found.same)))


def _blocks(document: UpdateDocument, same: int) -> list[Block]:
    blocks: list[Block] = []
    if document.changed:
        columns = (Column("type"), Column("before", right=True), Column("now", right=True))
        rows = [[each.instance_type, f"{each.before:g}", f"{each.after:g}"] for each in document.changed]
        blocks.append(Grid(columns, rows))
    blocks.append(
        Line(
            f"Against {document.compared_with}: {len(document.changed)} other prices, {len(document.new)} new, {same} "
            f"as before; {len(document.kept)} types that the price list does not have keep the price they had."
        )
    )
    if document.unused:
        said = ", ".join(f"{amount:,} {why}" for why, amount in document.unused.items())
        blocks.append(Line(f"Not used: {said}."))
    written = f"{document.priced} prices in {document.currency} of {document.region}, {document.date}"
    return [*blocks, Line(f"{written}: {document.file}", whole=True)]
