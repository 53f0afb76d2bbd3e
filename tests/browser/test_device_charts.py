"""Further series of GPUs: folded, drawn when they are opened, each line in its unit."""

from collections.abc import Callable

from tests.browser.pages import Opened

Open = Callable[..., Opened]
UNITS = ("sm_activity", "tensor_activity", "power", "pcie")


def test_opened_further_series_are_drawn_in_their_units(opened: Open) -> None:
    page = opened("collected")
    folded = page.page.locator("#tl-devices")
    assert folded.locator("summary").inner_text() == (
        "More of each GPU: SM activity, Tensor core activity, GPU power, PCIe, both directions"
    )
    kinds = folded.locator("[data-tl-chart]")
    assert [kinds.nth(index).get_attribute("data-tl-chart") for index in range(kinds.count())] == list(UNITS)
    assert folded.locator("[data-tl-drawn]").count() == 0

    folded.locator("summary").click()
    shown = {kind: page.chart(kind).locator(".tl-item").all_inner_texts() for kind in UNITS}

    assert [" ".join(each.split()) for each in shown["sm_activity"]][:2] == ["gpu0 30.0 %", "gpu1 31.0 %"]
    assert [" ".join(each.split()) for each in shown["tensor_activity"]][:2] == ["gpu0 20.0 %", "gpu1 21.0 %"]
    assert [" ".join(each.split()) for each in shown["power"]][:2] == ["gpu0 400 W", "gpu1 401 W"]
    assert [" ".join(each.split()) for each in shown["pcie"]] == ["mean of the GPUs 2.50 GB/s"]


def test_pressed_legend_hides_its_line(opened: Open) -> None:
    page = opened("collected")
    page.page.locator("#tl-devices summary").click()
    first = page.chart("power").locator(".tl-item").first
    first.click()
    assert first.get_attribute("aria-pressed") == "false"


def test_no_fold_is_shown_without_further_series(opened: Open) -> None:
    assert opened("healthy").page.locator("#tl-devices").count() == 0
