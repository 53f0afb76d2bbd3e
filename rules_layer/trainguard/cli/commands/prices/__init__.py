"""``trainguard prices``."""

import datetime
from pathlib import Path
from typing import Annotated

import typer

from trainguard.cli.command import PlainGroup, Result, command
from trainguard.cli.options import Prices, Profile, argument, out_option, region_option

prices = typer.Typer(
    name="prices",
    cls=PlainGroup,
    no_args_is_help=True,
    help="Show what instances cost, or update it from the account's price list.",
)


@prices.command()
@command()
def show(
    instance_type: Annotated[str | None, argument("TYPE", "An instance type, or its beginning; else all.")] = None,
    *,
    prices: Prices = None,
) -> Result:
    """Show instance types with their price, its source and its date, and their accelerators. It needs no network.

    Examples: `trainguard prices show ml.p5`, `trainguard prices show p5.48xlarge --json`,
    `trainguard prices show --prices prices.json`
    """
    from trainguard.cli.commands.prices.tables import shown
    from trainguard.local.settings import prices_from
    from trainguard.pricing.table import packaged_prices

    today = datetime.datetime.now(datetime.UTC).date()
    return shown(prices_from(prices) or packaged_prices(), instance_type or "", today)


@prices.command()
@command()
def update(
    *,
    region: Annotated[str | None, region_option("Whose prices to read; else that of the credentials.")] = None,
    out: Annotated[Path, out_option("The file to write; by default prices.json here.", metavar="FILE")] = Path(
        "prices.json"
    ),
    profile: Profile = None,
) -> Result:
    """Read the on-demand prices of training instances and of EC2 from the AWS price list, and write them to a file.

    It takes the permission pricing:GetProducts. Other commands take the file with --prices.

    Examples: `trainguard prices update`, `trainguard prices update --region eu-west-1 --out eu-west-1.json`
    """
    from trainguard.cli.commands.prices.tables import updated_file

    return updated_file(out, region, profile, day=datetime.datetime.now(datetime.UTC).date())
