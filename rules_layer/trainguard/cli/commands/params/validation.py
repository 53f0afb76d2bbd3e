"""``trainguard params validate``: faults of settings, before a job starts with them."""

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from trainguard.cli.output.rendering import Block, Grid, Line, TerminalColumn
from trainguard.cli.output.result import CommandResult
from trainguard.cli.services.names import OWN_RULES
from trainguard.config.launch import ALLOWED, LONGEST_KEY, LONGEST_VALUE, MOST_TAGS
from trainguard.core.errors import ParameterFileError
from trainguard.core.ports import RuleConfiguration
from trainguard.core.units import counted
from trainguard.engine.settings.job_settings import NO_PLACE, SettingFault, Source, resolve
from trainguard.engine.settings.sources import configured, read_document, settings_name, tag_source
from trainguard.engine.settings.tag_names import NAMESPACE, PROFILE_TAG, STOP_ALLOWED, STOP_TAG
from trainguard.local.settings import read_given
from trainguard.rules.parameters import takes_settings

_A_TAG = f"{NAMESPACE}<Rule>_<parameter>=<value>, or an existing file"
_TAG_TEXT = "letters, digits, spaces and . : / = + - _ @, and not aws: at the beginning"
_REQUEST = frozenset({"Tags", "ProfilerRuleConfigurations", "DebugRuleConfigurations"})
# Limit of a standard SSM parameter, in bytes; an advanced one holds twice as much, and costs money.
_DOCUMENT_SIZE = 4_096


class _Tag(msgspec.Struct, rename="pascal"):
    key: str
    value: str = ""


class _Rule(msgspec.Struct, rename="pascal"):
    rule_configuration_name: str
    rule_evaluator_image: str = ""
    rule_parameters: dict[str, str] = {}


class _Job(msgspec.Struct, rename="pascal"):
    tags: list[_Tag] = []
    profiler_config: dict[str, Any] = {}
    profiler_rule_configurations: list[_Rule] = []
    debug_rule_configurations: list[_Rule] = []


@dataclass(frozen=True, slots=True)
class _Read:
    tags: list[tuple[str, str]]
    sources: list[Source]
    faults: list[SettingFault]
    elsewhere: dict[str, str]


def validated(given: Sequence[str], stack: str) -> CommandResult:
    """Check files and tags as written; raises ParameterFileError for an unreadable file."""
    read = _Read([], [], [], {})
    for word in given:
        if not word or (word.lower().startswith(NAMESPACE) and "=" not in word and not _is_there(word)):
            read.faults.append(SettingFault("command line", "tag", word, _A_TAG))
        elif "=" in word and not _is_there(word):
            key, _, value = word.partition("=")
            read.tags.append((key, value))
            if not key.lower().startswith(NAMESPACE):
                read.faults.append(SettingFault("command line", "tag", word, _A_TAG))
        else:
            _read_file(read, word)
    tags = dict(read.tags)
    sources = [*read.sources, tag_source(tags)]
    # Each by itself: a fault counts also where another source overrides it.
    faults = [*read.faults, *_tag_faults(read.tags, stack)]
    faults += [fault for source in sources for fault in resolve("", [source], asked=True).faults]
    settings = sum(len(source.parameters) + len(source.choices) for source in sources)
    named = [fault.setting for fault in faults]
    return CommandResult(
        document={"valid": not faults, "settings": settings, "faults": faults, "elsewhere": read.elsewhere},
        blocks=_blocks(faults, settings, read.elsewhere),
        notes=[OWN_RULES] if any("_" in rule and not takes_settings(rule.partition("_")[0]) for rule in named) else [],
        failed=bool(faults),
    )


def _read_file(read: _Read, name: str) -> None:
    body = read_given(name, ParameterFileError)
    document: Any = None
    with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        document = msgspec.json.decode(body)
    if isinstance(document, list):
        return _read_job(read, name, {"Tags": document})
    if isinstance(document, dict) and _REQUEST & set(document):
        return _read_job(read, name, document)
    if len(body) > _DOCUMENT_SIZE:
        expected = f"at most {_DOCUMENT_SIZE:,}, or an SSM parameter of the advanced tier"
        read.faults.append(SettingFault(f"file {name}", "size in bytes", f"{len(body):,}", expected))
    read.sources.append(read_document(f"file {name}", body))
    return None


def _is_there(word: str) -> bool:
    try:
        return Path(word).exists()
    except (OSError, ValueError):
        return False  # too long for the name of a file, or no name at all


def _read_job(read: _Read, name: str, document: Mapping[str, Any]) -> None:
    try:
        job = msgspec.convert(document, _Job)
    except msgspec.ValidationError as fault:
        raise ParameterFileError(name, f"{fault}, as CreateTrainingJob has it") from fault
    read.tags.extend((tag.key, tag.value) for tag in job.tags)
    if (
        "TrainingJobName" in document
        and (STOP_TAG, STOP_ALLOWED) in read.tags
        and not job.profiler_config.get("S3OutputPath")
        and PROFILE_TAG not in dict(read.tags)
    ):
        read.faults.append(NO_PLACE)
    rules = configured(_rules(job.profiler_rule_configurations), _rules(job.debug_rule_configurations))
    read.elsewhere.update(rules.elsewhere)
    if job.profiler_rule_configurations:
        read.sources.append(rules)


def _rules(rules: Sequence[_Rule]) -> list[RuleConfiguration]:
    return [
        RuleConfiguration(each.rule_configuration_name, each.rule_evaluator_image, each.rule_parameters)
        for each in rules
    ]


def _tag_faults(tags: Sequence[tuple[str, str]], stack: str) -> list[SettingFault]:
    """Return what SageMaker would refuse, what TrainGuard would not read, and a name that leads nowhere."""
    faults = []
    for key, value in tags:
        source = f"tag {key}"
        for what, text, longest in (("key", key, LONGEST_KEY), ("value", value, LONGEST_VALUE)):
            if len(text) > longest or not ALLOWED.fullmatch(text):
                faults.append(SettingFault(source, what, text, f"at most {longest} {_TAG_TEXT}"))
        if key.lower().startswith(NAMESPACE) and not key.startswith(NAMESPACE):
            faults.append(SettingFault(source, "key", key, f"{NAMESPACE} in lower case"))
    twice = [key for key, times in Counter(key for key, _ in tags).items() if times > 1]
    faults += [SettingFault(f"tag {key}", "key", key, "each key once") for key in twice]
    if len(tags) > MOST_TAGS:
        faults.append(SettingFault("tags", "number of tags", str(len(tags)), f"at most {MOST_TAGS}"))
    named = settings_name(dict(tags), f"/{stack}/settings/")
    return [*faults, named] if isinstance(named, SettingFault) else faults


def _blocks(faults: Sequence[SettingFault], settings: int, elsewhere: Mapping[str, str]) -> list[Block]:
    columns = [TerminalColumn(title, folds=title != "setting") for title in ("given by", "setting", "is", "expected")]
    blocks: list[Block] = []
    if faults:
        blocks.append(Grid(columns, [[each.source, each.setting, each.value, each.expected] for each in faults]))
    else:
        blocks.append(Line(f"{counted(settings, 'setting')}, nothing wrong.", style="green"))
    return [*blocks, *(Line(f"Rule configuration {name} is not evaluated: {why}.") for name, why in elsewhere.items())]
