"""The words of RanksOutOfSync."""

from trainguard.core.units import counted
from trainguard.rules.rule_result import FactSheet, Words
from trainguard.rules.training.step_words import fires, said

BITS_DIFFER, NO_MAJORITY, UNKEPT = "bits differ", "no majority", "not kept equal"
COPIES_EQUAL, NOT_COMPARED = "copies equal", "not compared"
# Kinds of checksums, which have no tensors.
APART, EQUAL = "apart", "equal"

_FEW = 0.1
_MODELS_APART = (
    "From here on ranks train different models. Look for parameters outside the distributed wrapper, a rank that "
    "loaded another checkpoint or has another seed, steps that one rank skips, and a broken GPU: if it is always the "
    "same rank, replace its node."
)
_WHY = {
    "ranks_of_other_moment": ("rank", "hashed at another step, attempt or time"),
    "ranks_of_other_tensors": ("rank", "held other names, types or shapes"),
    "ranks_without_copies": ("rank", "held no tensor that another rank has a copy of"),
    "copies_missing": ("rank", "saved nothing at this step"),
}


def ranks_words(sheet: FactSheet) -> Words:
    if sheet.kind in {APART, EQUAL}:
        return _of_checksums(sheet)
    if sheet.kind == NOT_COMPARED:
        return said(sheet, f"no copies of tensors could be compared{_uncompared(sheet, ': ')}")
    if not fires(sheet):
        what = (
            f"{counted(sheet.count('ranks'), 'rank')} hold equal copies of {counted(sheet.count('tensors'), 'tensor')}"
        )
        return said(sheet, what + _uncompared(sheet))
    sentence = {BITS_DIFFER: _of_majority, NO_MAJORITY: _of_two, UNKEPT: _of_all}[sheet.kind](sheet)
    return said(sheet, sentence + _since(sheet) + _uncompared(sheet), _advice(sheet), "copies of tensors differed")


def _of_majority(sheet: FactSheet) -> str:
    apart, alike = sheet.count("ranks_apart"), sheet.count("ranks_alike")
    holds = "held" if sheet.past else "holds" if apart == 1 else "hold"
    are = "were" if sheet.past else "is" if alike == 1 else "are"
    return (
        f"{_ranks(sheet)} {holds} other bits than most of the {sheet.count('ranks')} copies in {_tensors(sheet)}; "
        f"{alike} {are} equal"
    )


def _of_two(sheet: FactSheet) -> str:
    differ, are = ("differed", "were") if sheet.past else ("differ", "are")
    return f"the copies of {_ranks(sheet)} {differ} in {_tensors(sheet)}, and no majority says which {are} right"


def _of_all(sheet: FactSheet) -> str:
    are, differ = ("were", "differed") if sheet.past else ("are", "differ")
    return f"the copies of {_ranks(sheet)} {are} not kept equal: they {differ} in {_tensors(sheet)}"


def _ranks(sheet: FactSheet) -> str:
    named = [str(each.value) for each in sheet.all("rank")]
    more = sheet.count("ranks_apart") - len(named)
    if more > 0:
        return f"ranks {', '.join(named)} and {more} more"
    return f"rank {named[0]}" if len(named) == 1 else f"ranks {', '.join(named[:-1])} and {named[-1]}"


def _tensors(sheet: FactSheet) -> str:
    apart, total = sheet.count("tensors_apart"), sheet.count("tensors")
    of = {"parameters": "parameters", "buffers": "buffers", "optimizer": "tensors of the optimizer"}
    named = [str(each.value) for each in sheet.all("tensor")]
    listed = f": {', '.join(named)}{' and others' if apart > len(named) else ''}" if named else ""
    return f"{apart} of {total} {of.get(sheet.name('copies_of'), 'tensors')}{listed}"


def _since(sheet: FactSheet) -> str:
    since, equal = sheet.count("since_step"), sheet.get("equal_step")
    parts = [] if since == sheet.count("step") else [f"first found at step {since}"]
    if equal is not None:
        parts.append(f"all copies were equal at step {equal.value}")
    return f" ({'; '.join(parts)})" if parts else ""


def _uncompared(sheet: FactSheet, before: str = "; not compared: ") -> str:
    parts = []
    unlike = sheet.get("ranks_unlike")
    if unlike is not None:
        parts.append(f"{unlike.value} ranks hold different tensors, and nothing says that they are copies")
    for name, (what, why) in _WHY.items():
        count = sheet.get(name)
        if count is not None:
            parts.append(f"{counted(int(count.value), what)} {why}")
    return before + ", ".join(parts) if parts else ""


def _advice(sheet: FactSheet) -> str:
    equal = sheet.get("equal_step")
    back = "before this step" if equal is None else f"of step {equal.value} or before"
    stop = f"Go back to a checkpoint {back}."
    if sheet.kind == UNKEPT:
        return (
            f"Check that the model that trains is the wrapped one, that all ranks load the same checkpoint, and that "
            f"gradients are reduced at each update. Where ranks are meant to differ between averages (local SGD), set "
            f"every= of watch_replicas to steps after an average; else go back to a checkpoint {back}."
        )
    if sheet.number("tensors_apart") > max(_FEW * sheet.number("tensors"), len(sheet.all("tensor"))):
        return f"{stop} {_MODELS_APART}"
    if sheet.kind == NO_MAJORITY:
        return (
            f"{stop} Compare the ranks' tensors with the checkpoint to see which one changed, and check their GPUs for "
            "ECC and XID errors. A third copy would say which."
        )
    return (
        f"{stop} Bits of so few tensors change in a broken memory or GPU: check that of the rank for ECC and XID "
        "errors; if it is the same rank again, replace its node."
    )


def _of_checksums(sheet: FactSheet) -> Words:
    ranks = int(sheet.number("ranks"))
    if not fires(sheet):
        return said(sheet, f"the checksums of {counted(ranks, 'rank')} are equal")
    apart, same = int(sheet.number("ranks_apart")), int(sheet.number("ranks_alike"))
    named = sheet.all("checksum_apart")
    has = "had" if sheet.past else "has"
    shown_ranks = ", ".join(f"{(each.device or '').removeprefix('rank ')} {has} {each.value}" for each in named)
    more = f" and {apart - len(named)} more {'differed' if sheet.past else 'differ'}" if apart > len(named) else ""
    have = "had" if sheet.past else "has" if same == 1 else "have"
    return said(
        sheet,
        f"{same} of {ranks} ranks {have} the checksum {sheet.name('checksum')}, rank {shown_ranks}{more}",
        f"Go back to a checkpoint before this step. {_MODELS_APART}",
        "ranks held different parameters",
    )
