"""What the page shows of training: each section with and without data, and names that mean harm."""

from typing import Any

import pytest
from msgspec.structs import replace

from tests.support.steps import Run
from tests.support.tensor_trials import trial_steps
from tests.unit.report_html.markup import PageRead, faults_of, read_page
from tests.unit.report_html.reports import HOSTILE, report
from trainguard.report.html.render import render_report
from trainguard.report.html.training.sections import render_xgboost
from trainguard.report.training.digest import Digester, TrainingDigest
from trainguard.report.training.document import TrainingReport, first_fire, training_report
from trainguard.rules.training.step_rule import Check

NAN = float("nan")


def digested(run: Run) -> TrainingDigest:
    digester = Digester()
    for step in run.steps:
        digester.fold(step)
    return digester.done()


def trained(digest: TrainingDigest, *fires: Check) -> TrainingReport:
    return training_report(
        digest,
        [first_fire(f"training/Rule{number}", fire, str(fire.kind), [fire.step]) for number, fire in enumerate(fires)],
    )


def page_of(training: TrainingReport) -> PageRead:
    page = render_report(replace(report(), training=training))
    assert faults_of(page) == []
    return read_page(page)


def trial(name: str) -> TrainingDigest:
    digester = Digester()
    for step in trial_steps(name):
        digester.fold(step)
    return digester.done()


def sections(page: PageRead) -> list[str]:
    return [name for name in page.ids if name.startswith(("training", "xgboost")) and not name.endswith("-title")]


def test_page_without_training_omits_its_sections() -> None:
    page = render_report(report())
    assert sections(read_page(page)) == []
    assert ".layer-map" not in page


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("overtraining", ["training-series", "training"]),
        ("vanishing_gradient", ["training-series", "training", "training-gradients", "training-updates"]),
        ("saturated_activation", ["training", "training-activations"]),
        ("confusion_test4_defaults", ["training", "training-confusion"]),
        ("stalled", ["training-series", "training"]),
    ],
)
def test_run_has_the_sections_of_what_was_saved(name: str, expected: list[str]) -> None:
    page = page_of(trained(trial(name)))
    assert sections(page) == expected
    assert [link for link in page.links if link[1:] in expected] == [f"#{each}" for each in expected]


def test_run_without_steps_has_no_sections() -> None:
    assert sections(page_of(trained(TrainingDigest()))) == []


def test_fires_are_marked_and_named_in_the_chart() -> None:
    fire = Check(step=26, at=26.0, fires=True, kind="the loss rose.", tensor="loss")
    page = page_of(trained(trial("overtraining"), fire))
    chart = next(each for each in page.of("svg") if each.attributes.get("class") == "chart")
    assert "loss over steps: train from 1 to 0.2, eval from 1.1 to 0.6" in chart.text
    assert "Rule0" in chart.text
    lines = [each for each in page.of("line") if each.attributes.get("class") == "limit" and "svg" in each.inside]
    assert lines
    assert "the loss rose." in page.text


def test_repeated_fires_have_lines_and_the_first_has_the_name() -> None:
    fire = Check(step=3, at=3.0, fires=True, kind="the loss rose.", tensor="loss")
    training = training_report(
        trial("overtraining"), [first_fire("training/Rule0", fire, str(fire.kind), [3, 9, 26, 4_000])]
    )
    page = page_of(training)
    lines = [each for each in page.of("line") if each.attributes.get("class") == "limit" and "svg" in each.inside]
    assert training.fires[0].episodes == [3, 9, 26, 4_000]
    assert len(lines) == 3
    chart = next(each for each in page.of("svg") if each.attributes.get("class") == "chart")
    assert chart.text.count("Rule0") == 1


def test_given_no_fires_when_rendered_then_that_is_said() -> None:
    assert "No rule of training health fired." in page_of(trained(trial("healthy"))).text


def test_steps_of_non_finite_losses_are_marked() -> None:
    run = Run()
    for step, value in enumerate([1.0, NAN, 0.5]):
        run.add(step, {"loss": value}, collections={"losses": ["loss"]})
    page = page_of(trained(digested(run)))
    assert [each.text for each in page.of("title") if "NaN" in each.text] == ["loss: NaN or infinite at 1"]


def test_page_with_only_non_finite_values_is_valid() -> None:
    run = Run()
    for step in range(3):
        run.add(
            step,
            {"loss": NAN, "gradient/a": [NAN, NAN], "a": [NAN], "x_relu_output_0": [NAN]},
            collections={"losses": ["loss"], "gradients": ["gradient/a"], "weights": ["a"]},
        )
    page = page_of(trained(digested(run)))
    assert "NaN or infinite" in page.text


def test_map_of_exploding_gradients_shows_their_first_step() -> None:
    page = page_of(trained(trial("exploding_tensor")))
    alt = [each.text for each in page.of("title") if "gradient/Net_fc0.weight" in each.text]
    assert len(alt) == 1
    assert "NaN or infinite from step 3" in alt[0]


@pytest.mark.parametrize("scale", [0.0, 1e-300, 1e300, -5.0])
def test_page_with_values_of_any_size_is_valid(scale: float) -> None:
    run = Run()
    for step in range(4):
        run.add(
            step,
            {"loss": scale * (step + 1), "gradient/a": [scale * step]},
            collections={"losses": ["loss"], "gradients": ["gradient/a"]},
        )
    page_of(trained(digested(run)))


def test_given_one_step_when_rendered_then_the_page_is_sound() -> None:
    run = Run()
    run.add(1_000_000_000, {"loss": 1.0, "g": [1.0]}, collections={"losses": ["loss"], "gradients": ["g"]})
    assert "1,000,000,000" in page_of(trained(digested(run))).text


def hostile_run() -> Run:
    run = Run()
    names = [f"{HOSTILE}{number}" for number in range(10_000)]
    for step in range(2):
        tensors: dict[str, Any] = {name: [1.0] for name in names}
        tensors |= {f"feature_importance/gain/{HOSTILE}": [0.5], "labels": [0, 1], "predictions": [0, 1]}
        tensors |= {f"hyperparameters/{HOSTILE}": [HOSTILE], "hyperparameters/objective": [HOSTILE]}
        run.add(
            step, tensors, collections={"losses": names[:5_000], "gradients": names[5_000:], "activations": names[:99]}
        )
    return run


def test_ten_thousand_hostile_names_are_text_on_a_small_page() -> None:
    fire = Check(step=1, at=1.0, fires=True, kind=HOSTILE, tensor=HOSTILE)
    training = training_report(digested(hostile_run()), [first_fire(f"training/{HOSTILE}", fire, str(fire.kind), [1])])
    pages = render_report(replace(report(), training=training)), render_xgboost(training, HOSTILE)
    for page in pages:
        assert faults_of(page) == []
        assert len(page) < 1_000_000
        assert not [character for character in "\u202e\x00\x1b" if character in page]
    assert "alert(1)" in read_page(pages[0]).text


@pytest.mark.parametrize("objective", ["multi:softmax", "binary:logistic", "reg:squarederror", "rank:ndcg", None])
@pytest.mark.parametrize(
    "tensors",
    [{}, {"labels": [0, 1]}, {"labels": [0.0, 1.0], "predictions": [0.25, 0.75]}, {"predictions": [0.5]}],
)
def test_sections_exist_for_any_objective_or_missing_tensors(objective: str | None, tensors: dict[str, Any]) -> None:
    run = Run()
    settings: dict[str, Any] = {"trees/Node": [0]} if objective is None else {"hyperparameters/objective": [objective]}
    run.add(0, {**settings, **tensors})
    page = render_xgboost(trained(digested(run)), "job")
    assert faults_of(page) == []
    titles = {each.text for each in read_page(page).of("h2")}
    assert {"Distribution of labels", "Loss and metrics", "Importance of features", "Residuals"} <= titles
    assert ("Receiver operating characteristic" in titles) == (objective == "binary:logistic")
    assert ("Absolute error by label" in titles) == (objective == "reg:squarederror")
    assert ("Confusion matrix" in titles) == (objective != "reg:squarederror")
    alt = read_page(page).text
    if "labels" not in tensors:
        assert "The run saved no labels" in alt
    assert ("some plots are missing" in alt) == (objective == "rank:ndcg")


def test_xgboost_page_says_what_it_is_not() -> None:
    page = read_page(render_xgboost(trained(trial("hook_xgboost_wine")), "job"))
    assert "Check the model yourself before you rely on it." in page.text
    assert "Accuracy 0.803 at step 50" in page.text
