"""A deployment's own price table: it goes into the layer in place of the packaged one, and is checked before."""

from pathlib import Path

import pytest
from aws_cdk import App, Stack

from infra import bundling, overlay
from infra.bundling import layer_folder
from infra.config import DeploymentConfig, DeploymentConfigError
from infra.constructs.layer import RulesLayer
from trainguard.core.errors import PriceTableError
from trainguard.pricing.table import InstanceRow, PriceTable, read_prices, write_prices

OWN = PriceTable("eu-west-1", "EUR", {"ml.p5.48xlarge": InstanceRow(60.0, "our contract")})


def test_functions_read_the_price_table_in_the_layer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundling, "compile_site", lambda *_: None)
    folder = layer_folder(overlay.AWS, tmp_path, prices=write_prices(OWN))
    body = (folder / "python" / "trainguard" / "pricing" / "prices.json").read_bytes()
    assert read_prices("", body) == OWN
    assert layer_folder(overlay.AWS, tmp_path, prices=write_prices(OWN)) == folder
    assert len(list(tmp_path.iterdir())) == 1


def test_other_price_table_builds_another_layer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundling, "_install", lambda *_: None)
    monkeypatch.setattr(bundling, "compile_site", lambda *_: None)
    dearer = PriceTable("eu-west-1", "EUR", {"ml.p5.48xlarge": InstanceRow(61.0, "our contract")})
    folders = [
        layer_folder(overlay.AWS, tmp_path, prices=prices)
        for prices in (None, write_prices(OWN), write_prices(dearer), write_prices(OWN))
    ]
    assert len(set(folders)) == 3
    assert folders[1] == folders[3]


def test_price_table_of_the_context_is_a_path() -> None:
    assert DeploymentConfig.from_context({}).prices is None
    assert DeploymentConfig.from_context({"prices": "ours.json"}).prices == "ours.json"
    with pytest.raises(DeploymentConfigError, match="prices is '  ', expected the file of a price table"):
        DeploymentConfig.from_context({"prices": "  "})


@pytest.mark.parametrize(("body", "why"), [(None, "No such file"), (b"[]", "Expected `object`")])
def test_unusable_price_table_stops_synthesis_with_its_name(tmp_path: Path, body: bytes | None, why: str) -> None:
    file = tmp_path / "ours.json"
    if body is not None:
        file.write_bytes(body)
    with pytest.raises(PriceTableError, match=why):
        RulesLayer(Stack(App(), "Stack"), "Layer", overlay=overlay.AWS, prices=str(file))
