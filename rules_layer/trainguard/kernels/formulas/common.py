"""What formulas share: tensors and lists of an operator's inputs, and costs in which each tensor moves once."""

from collections.abc import Callable

from trainguard.kernels.costs import Cost, Inputs, Shape

Formula = Callable[[Inputs], Cost]

# Bytes of an index.
LONG = 8


def once(inputs: Inputs, flops: int, *sizes: int) -> Cost:
    """Return the cost where tensors of so many elements move, in the type of the first input that has one."""
    moved = type_of(inputs) * sum(sizes)
    return Cost(flops, moved, moved)


def type_of(inputs: Inputs) -> int:
    """Return the bytes of an element of the first tensor whose type is known."""
    for size, shape in zip(inputs.element_bytes, inputs.shapes, strict=True):
        if size > 0 and shape:
            return size
    raise ValueError("no input has a known type")


def bytes_of(inputs: Inputs, place: int) -> int:
    """Return the bytes of an element of an input; raises ValueError where its type is not known."""
    if inputs.element_bytes[place] <= 0:
        raise ValueError("a type that is not known")
    return inputs.element_bytes[place]


def tensor(inputs: Inputs, place: int) -> Shape:
    if not inputs.shapes[place]:
        raise ValueError("no tensor")
    return inputs.shapes[place]


def numbers(inputs: Inputs, place: int) -> list[int]:
    """Return the numbers of an argument, one or several; raises ValueError where it is none."""
    text = inputs.values[place].strip("()[]")
    return [int(each) for each in text.split(",")]


def says(inputs: Inputs, place: int) -> bool:
    """Return whether an argument is true; raises ValueError where the trace does not record it."""
    if inputs.values[place] not in ("True", "False"):
        raise ValueError("neither true nor false")
    return inputs.values[place] == "True"


def broadcast(*shapes: Shape) -> Shape:
    """Return the shape that shapes have together; raises ValueError where they do not fit."""
    length = max(map(len, shapes))
    padded = [(1,) * (length - len(shape)) + tuple(shape) for shape in shapes]
    sizes = [set(each) - {1} for each in zip(*padded, strict=True)]
    if any(len(each) > 1 for each in sizes):
        raise ValueError("shapes that do not fit")
    return tuple(each.pop() if each else 1 for each in sizes)
