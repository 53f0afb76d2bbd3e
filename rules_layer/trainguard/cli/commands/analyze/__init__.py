"""``trainguard analyze``."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from trainguard.cli.command import Result, command
from trainguard.cli.options import (
    DefaultsOf,
    FrameworkExpected,
    InstanceType,
    Params,
    Prices,
    argument,
    defaults_option,
    out_option,
    rule_option,
)


@command(fails_on_fire=True, loads_rules=("rules_package",))
def analyze(
    source: Annotated[
        str,
        argument(
            "SOURCE",
            "A folder or s3://bucket/prefix that is, contains, or lies above a profiler-output or a debug-output; "
            "or a run of Weights & Biases, MLflow or Prometheus (docs/sources.md).",
        ),
    ],
    *,
    out: Annotated[
        Path | None,
        out_option("Folder for profiler-reports/<Rule>.json and debugger-reports/<Rule>.json; else none."),
    ] = None,
    reading: Annotated[
        Literal["documented", "compatible"],
        typer.Option("--reading", help="What the documentation promises, or what the managed service does."),
    ] = "documented",
    defaults: Annotated[DefaultsOf | None, defaults_option("Defaults of parameters; each reading has its own.")] = None,
    params: Params = None,
    instance_type: InstanceType = None,
    prices: Prices = None,
    framework_expected: FrameworkExpected = False,
    rule: Annotated[str | None, rule_option("Run only this custom rule.")] = None,
    as_json: bool,
) -> Result:
    """Evaluate an ended job's profile with all rules; with --out, write their reports.

    Exit code 0: the analysis ran, whatever it found. 1: a rule fired and --fail-on-fire was given. 2: it could not run.
    3: no rule could be evaluated.

    Examples: `trainguard analyze ./my-job`, `trainguard analyze s3://my-profiles/my-job --out report`,
    `trainguard analyze ./my-job --out report --params stricter.json --fail-on-fire`,
    `trainguard analyze ./my-job --out report --rule my_rules.host_memory:HostMemory`
    """
    from trainguard.cli.commands.analyze.outcome import blocks_of, document_of, documented
    from trainguard.cli.output.files import write_files
    from trainguard.cli.output.progress import stderr_progress
    from trainguard.cli.output.rendering import Line
    from trainguard.cli.output.result import CommandResult
    from trainguard.core.errors import RequestError

    chosen = defaults or ("documented" if reading == "documented" else "shipped")
    progress = stderr_progress(shown=not as_json)
    if reading == "compatible":
        if rule is not None:
            raise RequestError(
                "--rule was given with --reading compatible", "Custom rules support only --reading documented."
            )
        from trainguard.cli.commands.analyze.debugger_replay import debugger_replay

        outcome = debugger_replay(source, progress, out=out, params=params, defaults=chosen)
    else:
        outcome = documented(
            source,
            progress,
            out=out,
            params=params,
            prices=prices,
            defaults=chosen,
            instance_type=instance_type,
            framework_expected=framework_expected,
            rule=rule,
        )
    blocks = blocks_of(outcome)
    if out is not None:
        write_files(out, outcome.files)
        blocks.append(Line(f"Reports: {out}", whole=True))
    places = {"source": _text(outcome.place), "out": None if out is None else _text(str(out))}
    return CommandResult(
        document=document_of(outcome, reading=reading, defaults=chosen, **places),
        blocks=blocks,
        notes=outcome.notes,
        fired=bool(outcome.fired),
        evaluated=outcome.evaluated,
    )


def _text(path: str) -> str:
    """Return a path as text; a question mark for each byte that is none."""
    return path.encode("utf-8", "replace").decode()
