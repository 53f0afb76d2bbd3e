r"""Losses and metrics in lines of a log, as trainers print them.

Forms: ``loss: 0.5``, ``train_loss=0.5``, ``'loss': '0.5'``, ``lm loss: 1.2E+00 |``, ``- val_loss: 0.5``, ``lr=[0.1]``,
``[12]#011train-rmse:0.5``, ``training's l2: 0.5``, ``10:\tlearn: 0.5``, each with the step of ``step 120``,
``iteration 120/ 1000``, ``global_step=1.2e+2`` or ``[12]``, and with ``Epoch 3``, if any; and CycleGAN's
``(epoch: 1, iters: 100, time: 0.1, data: 0.2) G_A: 0.8``.
"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from trainguard.formats.tensors.scalars.names import LEARNING_RATE, LOSSES, METRICS, has_meaning
from trainguard.formats.tensors.scalars.taken_rows import MOST_ROWS, TakenRows
from trainguard.formats.tensors.scalars.text_lines import WholeLines

LONGEST_LINE = 1_000
_ANSI = re.compile(r"\x1b\[[0-9;?]{0,16}[A-Za-z]|\x08+")

_NUMBER = r"(?P<value>[-+]?(?:\d{1,20}(?:\.\d{0,20})?|\.\d{1,20})(?:[eE][-+]?\d{1,3})?|[-+]?(?:nan|inf|infinity)\b)"
_DATA = (
    r"(?:train|training|val|valid|validation|test|eval|dev|lm|total|mean|avg|average|running|epoch|step|mtp_\d|[dg]|"
    r"gen|disc|generator|discriminator|actor|critic|policy|value)"
)
_KIND = (
    r"(?:loss[ _]scale|loss|accuracy|acc|perplexity|ppl|rmse|mse|mae|logloss|auc|f1|gnorm|grad(?:ient)?[_ ]norm|"
    r"learning[_ ]rate|lr|entropy|kl|reward|return|wer|cer|bleu|miou|map)"
)
_WORDS = rf"(?:{_DATA}[ ]){{0,2}}(?:[A-Za-z0-9]{{1,24}}[_\-/.@:]){{0,4}}{_KIND}(?:[_@/][A-Za-z0-9]{{1,16}}){{0,2}}"
_CAMEL = r"(?-i:[A-Za-z][a-z0-9]{0,16}(?:[A-Z][a-z0-9]{1,16}){0,3}(?:Loss|Accuracy|Acc|Perplexity|Error))"
_PREFIX = r"(?:[A-Za-z0-9]{1,24}[_\-/.@:]){0,4}"
_GLUED = r"(?:train|val|valid|test|eval)(?:loss|acc|accuracy|error)"
_SCALAR = re.compile(
    rf"(?<![\w./-])(?<!td of )(?P<name>{_WORDS}|{_PREFIX}(?:{_CAMEL}|{_GLUED})|"
    r"(?:[A-Za-z0-9]{1,24}[_\-/.@:]){1,4}error|"
    r"number of (?:nan|skipped) iterations)"
    rf"['\"]?(?:\s{{0,3}}(?:[:=]\s{{0,8}}['\"]?\[?|\s))(?:tensor\()?{_NUMBER}",
    re.IGNORECASE,
)
_ERROR = re.compile(rf"(?<![\w./-])(?P<name>error)['\"]?\s{{0,3}}[:=]\s{{0,3}}['\"]?{_NUMBER}", re.IGNORECASE)
_BOOSTED = re.compile(
    r"(?P<data>[A-Za-z][A-Za-z0-9_]{0,30})(?:'s[ ]|-)(?P<metric>[A-Za-z][\w@.+-]{0,40}):\s{0,2}" + _NUMBER,
    re.IGNORECASE,
)
_CATBOOST = re.compile(rf"\t(?P<name>learn|test\d{{0,2}}):[ ]{_NUMBER}", re.IGNORECASE)
_MEGATRON = re.compile(rf"(?P<data>validation|test) loss at .{{1,60}}?\| lm loss value: {_NUMBER}", re.IGNORECASE)
_TRANSLATED = re.compile(r"\(epoch: \d{1,7}, iters: \d{1,12}[^()]{0,80}\)[ ,]{1,3}(?P<losses>.+)", re.IGNORECASE)
# Losses of CycleGAN and pix2pix (util/visualizer.py), which call ``loss_G_A`` of a model ``G_A``.
_LOSS = re.compile(rf"(?<![\w./-])(?P<name>[A-Za-z][\w./-]{{0,40}}): {_NUMBER}(?=[ ,]|$)", re.IGNORECASE)

_STEP = re.compile(
    r"(?<![\w.])(?<![sc]/)(?:global[_ ]?steps?|num_updates|steps?|iter(?:ation)?s?|batch)['\"]?"
    r"\s{0,3}[:=#]?\s{0,8}['\"]?\[?\s{0,8}(?P<step>\d{1,15}(?:\.\d{1,6})?(?:e\+?\d{1,2})?)(?![\d.]*\d|\s?%|it/s)",
    re.IGNORECASE,
)
_FURTHEST = re.compile(r"(?<![\w.])(?:global[_ ]?step|num_updates)", re.IGNORECASE)
# The round stands behind a time that a container may print.
_ROUND = re.compile(r"^\s{0,8}(?:\[[0-9:. -]{1,40}\]\s{0,4})?\[(?P<step>\d{1,9})\](?=\s)")

_TREE = re.compile(r"^\s{0,8}(?P<step>\d{1,9}):\tlearn:")
_EPOCH = re.compile(
    r"(?<![\w.])epoch(?:\((?:train|val|test)\))?['\"]?\s{0,3}[:=#]?\s{0,3}['\"]?\[?(?P<epoch>\d{1,7})(?![\d.]*\d)",
    re.IGNORECASE,
)
_DONE = re.compile(r"(?<![\d./])(?P<done>\d{1,12})\s{0,2}/\s{0,2}(?P<of>\d{1,12})(?![\d./])")
# A line of Keras' progress bar: its values are means so far.
_UNFINISHED = re.compile(r"^\s{0,8}(?P<done>\d{1,9})/(?P<of>\d{1,9})\s{1,4}[\[━╺ ]")

_COUNTED = re.compile(r"\s?/\s?(?P<of>\d{1,12})\b")
_SET = re.compile(
    r"(?i)(?<![^\W_])(?:train|training|val|valid|validation|eval|evaluation|test|testing|dev)(?![^\W\d_])"
)
_LAST_SET = re.compile(
    r"(?i)(?<![\w./-])(?:train|training|val|valid|validation|eval|evaluation|test|testing|dev)(?![\w.-])"
)

# A line that ends with where the values below it are: ``Epoch 3/25``, ``[step=120/15000,epoch=0]``.
_HEADING = re.compile(
    r"(?i)(?<![\w.])(?:epoch|step|iter(?:ation)?|global_step)[ :=#]{0,4}\d{1,12}(?!\d)[^A-Za-z]{0,20}(?:epoch=\d+\W*)?$"
)

_SETS = {"training": "train", "valid_0": "validation", "valid_1": "validation", "validation_0": "validation"}


@dataclass(frozen=True, slots=True)
class LogScalars:
    """Names and texts of numbers of one line, and the step and the epoch that it names."""

    pairs: tuple[tuple[str, str], ...]
    step: int | None = None
    epoch: int | None = None


def plain_line(text: str) -> str:
    """Return the part of a line that is looked at, without colours, as a container wrote it."""
    return _ANSI.sub("", text[: 2 * LONGEST_LINE])[:LONGEST_LINE].replace("#011", "\t")


def pairs_in(text: str) -> tuple[tuple[str, str], ...]:
    match = _UNFINISHED.match(text)
    if match is not None and int(match["done"]) < int(match["of"]):
        return ()
    if _ROUND.search(text) and (boosted := list(_BOOSTED.finditer(text))):
        return _of_boosting(boosted)
    if _TREE.search(text):
        return tuple((match["name"].lower(), match["value"]) for match in _CATBOOST.finditer(text))
    translated = _TRANSLATED.search(text)
    if translated is not None:
        return tuple((_as_loss(match["name"]), match["value"]) for match in _LOSS.finditer(translated["losses"]))
    validated = _MEGATRON.search(text)
    if validated is not None:
        return ((f"{validated['data'].lower()}_lm_loss", validated["value"]),)
    found = sorted([*_SCALAR.finditer(text), *_ERROR.finditer(text)], key=re.Match.start)
    return tuple(zip(_named(text, found), map(_number, found), strict=True))


def _as_loss(name: str) -> str:
    return name if any(has_meaning(meaning, name) for meaning in (LOSSES, METRICS, LEARNING_RATE)) else f"loss_{name}"


def _named(text: str, found: list[re.Match[str]]) -> list[str]:
    """Return the names of a line's scalars, with the set of evaluation that the line names once for several of them.

    Forms: ``Test: [10/79] Loss 0.5 Acc@1 90``, ``Train - Loss: 0.5 | Val - Loss: 0.6``, ``val Loss: 0.5 Acc: 0.9``.
    """
    names = [match["name"].replace(" ", "_") for match in found]
    own = [_SET.search(match["name"]) for match in found]
    if any(own[1:]) or (own and own[0] is not None and "loss" not in names[0].lower()):
        return names
    sets = [(match.end(), match[0]) for match in _LAST_SET.finditer(text)]
    of_first = own[0][0] if own and own[0] is not None else None
    for place, match in enumerate(found):
        before = [named for end, named in sets if end <= match.start()][-1:]
        of_it = (of_first or "".join(before)).lower()
        if own[place] is None and of_it not in ("", "train", "training"):
            names[place] = f"{of_it}_{names[place]}"
    return names


def _number(match: re.Match[str]) -> str:
    """Return the text of a number; of ``Accuracy: 9842/10000`` that of the share."""
    counted = _COUNTED.match(match.string, match.end("value"))
    if counted is None or "acc" not in match["name"].lower() or not match["value"].isdecimal():
        return match["value"]
    of = int(counted["of"])
    return f"{int(match['value']) / of:.6g}" if of else match["value"]


def _of_boosting(found: list[re.Match[str]]) -> tuple[tuple[str, str], ...]:
    renamed = [f"{_SETS.get(match['data'].lower(), match['data'])}-{match['metric']}" for match in found]
    if len(set(renamed)) < len(renamed):
        renamed = [f"{match['data']}-{match['metric']}" for match in found]
    return tuple((name, match["value"]) for name, match in zip(renamed, found, strict=True))


def position_in(text: str) -> tuple[int | None, int | None]:
    """Return the step and the epoch that a plain line names; a batch of an epoch is a step where both are known."""
    step = _step_in(text)
    match = _EPOCH.search(text)
    if match is None:
        return step, None
    epoch = int(match["epoch"])
    done = _DONE.search(text, match.end())
    if step is None and done is not None and int(done["done"]) <= int(done["of"]):
        return epoch * int(done["of"]) + int(done["done"]), epoch
    return step, epoch


def _step_in(text: str) -> int | None:
    steps = list(_STEP.finditer(text))
    match = next((each for each in steps if _FURTHEST.match(each[0])), None) or (steps[0] if steps else None)
    match = match or _ROUND.search(text) or _TREE.search(text)
    return None if match is None else int(float(match["step"]))


def scalars_in(text: str) -> LogScalars:
    plain = plain_line(text)
    pairs = pairs_in(plain)
    return LogScalars(pairs, *position_in(plain)) if pairs else LogScalars(())


_CELL = re.compile(r"(?P<number>[-+]?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?|nan|inf)[GMK%]?:?", re.IGNORECASE)
_EPOCH_CELL = re.compile(r"(?P<epoch>\d{1,7})(?:/\d{1,7})?")
_PRINTED_NAME = re.compile(r"[A-Za-z][\w()@./-]{0,40}")


class Printed:
    """A table that is printed into a log, as fastai and Ultralytics do: names behind ``epoch``, and numbers below."""

    def __init__(self) -> None:
        self._names: list[str] = []

    def take(self, text: str) -> LogScalars | None:
        """Return what a plain line below the names says; None of any other line."""
        words = text.split()
        if len(words) > 2 and words[0].lower() == "epoch" and all(map(_PRINTED_NAME.fullmatch, words)):
            self._names = words[1:]
            return None
        epoch = _EPOCH_CELL.fullmatch(words[0]) if self._names and words else None
        cells = [_CELL.fullmatch(word) for word in words[1 : len(self._names) + 1]]
        if epoch is None or len(cells) < len(self._names):
            return None
        named = zip(self._names, cells, strict=True)
        pairs = tuple((name, cell["number"]) for name, cell in named if cell and _OF_TABLE.search(name))
        return LogScalars(pairs, epoch=int(epoch["epoch"])) if pairs else None


_FRAME = re.compile(r"[-=+]{8,}")
_ROW = re.compile(rf"\|\s*(?P<name>[A-Za-z][\w/.() -]{{0,60}}?)\s*\|\s*(?:{_NUMBER})?\s*\|", re.IGNORECASE)
_ROW_OF_STEP = re.compile(r"(?i)(?:^|/)(?:total_?(?:timesteps|steps)|steps|TotalEnvInteracts|timesteps_total)$")


class Boxed:
    """A table with a row for each scalar, as Stable Baselines and Spinning Up print one for each update.

    A name that ends with a slash is of those below it.
    """

    def __init__(self) -> None:
        self._above = ""
        self._rows: dict[str, str] = {}

    def take(self, text: str) -> LogScalars | None:
        """Return what a table says at its last line; None of any other line."""
        text = text.strip()
        if _FRAME.fullmatch(text):
            rows, self._rows, self._above = self._rows, {}, ""
            counts = next((name for name in rows if _ROW_OF_STEP.search(name)), None)
            if counts is None or not rows[counts].replace(".", "", 1).isdecimal():
                return None
            step = int(float(rows.pop(counts)))
            return LogScalars(tuple(rows.items()), step=step)
        match = _ROW.fullmatch(text)
        if match is None or len(self._rows) >= MOST_IN_BOX:
            return None
        if match["value"] is None:
            self._above = match["name"] if match["name"].endswith("/") else self._above
        else:
            self._rows[self._above + match["name"]] = match["value"]
        return None


MOST_IN_BOX = 200
_FEWEST = 3
_OF_TABLE = re.compile(r"loss|acc|error|f1|map|dice|iou|perplexity|mse|mae|auc|precision|recall", re.IGNORECASE)
_NAMES_TRAINING = re.compile(rb"loss|acc|rmse|perplexity|learn:|train|valid|eval|rew|epret|\(epoch: \d", re.IGNORECASE)
_NAMED = re.compile(r"loss|acc|rmse|perplexity|learn|-", re.IGNORECASE)


def is_training_log(beginning: bytes) -> bool:
    """Whether lines are of training, by the first ones: three of them name the same loss or the like."""
    if _NAMES_TRAINING.search(beginning) is None:
        return False
    named: Counter[str] = Counter()
    columns, boxes = Printed(), Boxed()
    for line in re.split(r"[\r\n]+", beginning.decode("utf-8", "replace")):
        plain = plain_line(line)
        box = boxes.take(plain)
        found = box or columns.take(plain) or scalars_in(line)
        named.update(name for name, _ in found.pairs if box is not None or _NAMED.search(name))
        if max(named.values(), default=0) >= _FEWEST:
            return True
    return False


def read_log(lines: WholeLines, taken: TakenRows) -> None:
    """Read the lines of a log into ``taken``; a line without a step is of the last one, or counted where none has."""
    found = _below_headings(list(_found(lines, taken)))
    if any(each.step is not None for _, each, _ in found):
        found = list(_placed(found))
    elif found and all(each.epoch is not None for _, each, _ in found) and _apart(found):
        found = [(line, replace(each, step=each.epoch, epoch=None), values) for line, each, values in found]
    else:
        found = [(line, replace(each, step=at, epoch=None), values) for at, (line, each, values) in enumerate(found)]
    for line, each, values in found:
        epoch = None if each.epoch is None else float(each.epoch)
        taken.add(f"line {line:,}", each.step, values, epoch=epoch)


Found = tuple[int, LogScalars, dict[str, float]]


def _found(lines: WholeLines, taken: TakenRows) -> Iterator[Found]:
    count, printed, boxes = 0, Printed(), Boxed()
    for text in lines:
        lines.begin_row()
        plain = plain_line(text)
        scalars = boxes.take(plain) or printed.take(plain) or scalars_in(text)
        heading = None if scalars.pairs else _HEADING.search(plain)
        if heading is not None:
            scalars = LogScalars((), *position_in(plain))
            yield lines.number, scalars, {}
        if scalars.pairs:
            count += 1
            if count > MOST_ROWS:
                taken.refuse("line", f"more than {MOST_ROWS:,} rows, from line {lines.number:,} on")
                return
            yield lines.number, scalars, {name: float(value) for name, value in scalars.pairs}


def _below_headings(found: list[Found]) -> list[Found]:
    """Return lines with values, of which those below a heading have its position where none has its own.

    A scalar that comes twice below one heading says that the lines count something else.
    """
    valued = [each for each in found if each[2]]
    if len(valued) == len(found) or any(each.step is not None or each.epoch is not None for _, each, _ in valued):
        return valued
    placed: list[Found] = []
    above, names = LogScalars(()), set[str]()
    for line, each, values in found:
        if not values:
            above, names = LogScalars((), each.step, each.epoch), set()
        elif names & values.keys():
            return valued
        else:
            names |= values.keys()
            placed.append((line, replace(each, step=above.step, epoch=above.epoch), values))
    return placed


def _placed(found: list[Found]) -> Iterator[Found]:
    last: LogScalars | None = None
    for line, each, values in found:
        if each.step is not None:
            last = each
        step, epoch = (0, None) if last is None else (last.step, last.epoch)
        yield line, replace(each, step=step, epoch=epoch), values


def _apart(found: list[Found]) -> bool:
    """Whether no scalar comes twice in one stretch of an epoch."""
    epoch, names = None, set[str]()
    for _, each, values in found:
        if each.epoch != epoch:
            epoch, names = each.epoch, set()
        if names & values.keys():
            return False
        names |= values.keys()
    return True
