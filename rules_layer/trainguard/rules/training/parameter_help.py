"""What the parameters that several rules over steps share mean."""

from trainguard.rules.parameter_help import ParameterHelp

RANGE_HELP = {
    "start_step": ParameterHelp("step", "the first step that is checked; None for the first saved one"),
    "end_step": ParameterHelp("step", "the first step that is not checked any more; None for no end"),
}
SELECTION_HELP = {
    "collection_names": ParameterHelp("names", "collections, separated by commas, whose tensors are checked"),
    "tensor_regex": ParameterHelp(
        "patterns",
        "regular expressions, separated by commas; tensors whose name one of them is found in are checked too",
    ),
}
