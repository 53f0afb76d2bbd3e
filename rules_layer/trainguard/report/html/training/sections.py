"""The sections on training: losses and metrics, gradients, updates, activations, and the confusion of classes."""

from trainguard.core.units import counted, listed
from trainguard.render.blocks import Block, Column, Note, Panel, Table
from trainguard.render.names import shown_name
from trainguard.render.numbers import NOTHING
from trainguard.report.html.training.charts import series_blocks
from trainguard.report.html.training.maps import confusion_blocks, map_blocks
from trainguard.report.html.training.xgboost_sections import xgboost_sections
from trainguard.report.training.document import TrainingReport
from trainguard.report.training.layers import L2

LOSS_ANCHOR = "training-series"


def training_sections(training: TrainingReport) -> list[Panel]:
    """Return the sections that have something to show; of a run without steps there are none."""
    if not training.steps:
        return []
    found = [
        Panel("training", "Training", _overview(training), _covered(training)),
        Panel(LOSS_ANCHOR, "Loss and metrics", series_blocks(training)),
        Panel("training-gradients", "Gradients", _gradients(training)),
        Panel("training-updates", "Weight updates", _updates(training)),
        Panel("training-activations", "Activations", _activations(training)),
    ]
    if training.model is not None:
        found += [
            Panel(f"xgboost-{section.anchor}", section.title, section.blocks, section.lead)
            for section in xgboost_sections(training)
        ]
    elif training.predictions.confusion is not None:
        found.append(
            Panel("training-confusion", "Confusion of classes", confusion_blocks(training.predictions.confusion))
        )
    return [each for each in found if each.blocks]


def _covered(training: TrainingReport) -> str:
    modes = listed([f"{amount:,} of mode {mode}" for mode, amount in training.modes.items() if mode != "GLOBAL"])
    of_modes = f", {modes}" if modes else ""
    return f"{counted(training.steps, 'saved step')} from {training.first_step:,} to {training.last_step:,}{of_modes}."


def _overview(training: TrainingReport) -> list[Block]:
    shown: list[Block] = []
    if training.fires:
        columns = [Column("Rule"), Column("First step", "number"), Column("Tensor"), Column("What it found")]
        rows = [
            (each.rule.rpartition("/")[2], f"{each.step:,}", shown_name(each.tensor or NOTHING), each.reason)
            for each in training.fires
        ]
        shown.append(Table("Rules that fired, by their first firing step", columns, rows))
    else:
        shown.append(Note("No rule of training health fired."))
    shown.extend(Note(each) for each in training.left_out)
    return shown


def _gradients(training: TrainingReport) -> list[Block]:
    held = training.layers.gradients
    what = "L2 norm" if held.measure == L2 else "Mean absolute value"
    return map_blocks(held, f"{what} of each gradient")


def _updates(training: TrainingReport) -> list[Block]:
    return map_blocks(
        training.layers.updates, "Change of each weight since its saved step before, in relation to its norm"
    )


def _activations(training: TrainingReport) -> list[Block]:
    layers = training.layers
    return [
        *map_blocks(layers.activation_zeros, "Share of zeros of each activation", shares=True),
        *map_blocks(layers.activation_saturated, "Share of saturated inputs of tanh and sigmoid", shares=True),
        *map_blocks(layers.activation_mean, "Mean of each activation"),
    ]
