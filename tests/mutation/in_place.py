"""Puts a mutated function's code in the place of the original one, in this process alone, without a new import."""

import ast
import gc
from collections.abc import Iterator
from types import CodeType, FunctionType

from tests.mutation.mutants import Mutant


class NotInPlaceError(Exception):
    """The mutant is not in a function that this process has imported, or its function has another form."""


def replace(mutant: Mutant) -> None:
    """Give the functions that a mutant changes their new code.

    What a function computed when its module was imported stays as it was: tests that pass prove nothing then.

    Raises
    ------
    NotInPlaceError
        When no function has the old code, or the new one does not fit.
    """
    try:
        changed = dict(_changed(mutant))
        found = [each for each in gc.get_objects() if isinstance(each, FunctionType) and each.__code__ in changed]
        for function in found:
            function.__code__ = changed[function.__code__]
    except ValueError as error:  # another number of functions inside, or of the variables that they close over
        raise NotInPlaceError(mutant.name) from error
    if not found:
        raise NotInPlaceError(mutant.name)


def _changed(mutant: Mutant) -> Iterator[tuple[CodeType, CodeType]]:
    """Yield each changed code of the module, as it was imported, and what takes its place."""
    imported = compile(mutant.file.read_text(), str(mutant.file.resolve()), "exec")
    plain = compile(ast.unparse(ast.parse(mutant.file.read_text())), "", "exec")
    new = compile(mutant.source, "", "exec")
    yield from _differing(imported, plain, new)


def _differing(imported: CodeType, plain: CodeType, new: CodeType) -> Iterator[tuple[CodeType, CodeType]]:
    """Yield the outermost functions that differ: ``plain`` and ``new`` are of unparsed source, alike but for them."""
    inside = [[each for each in code.co_consts if isinstance(each, CodeType)] for code in (imported, plain, new)]
    for old, before, after in zip(*inside, strict=True):
        if before == after:
            continue
        if _is_function(old):
            yield old, after.replace(co_filename=old.co_filename)
        else:
            yield from _differing(old, before, after)


def _is_function(code: CodeType) -> bool:
    return bool(code.co_flags & 0x2)
