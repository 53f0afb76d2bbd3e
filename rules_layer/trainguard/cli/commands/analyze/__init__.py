"""``trainguard analyze``."""

from functools import partial
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
            "A folder, a file or s3://bucket/prefix with runs: profiler-output, debug-output, files of TensorBoard and "
            "trainers, or runs of Weights & Biases, MLflow or Prometheus (docs/sources.md).",
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
    rule: Annotated[str | None, rule_option("MODULE:CLASS", "Run only this custom rule.")] = None,
    as_json: bool,
) -> Result:
    """Evaluate an ended job with all rules; with --out, write their reports. Of several runs, each has a line.

    Exit code 0: the analysis ran, whatever it found. 1: a rule fired and --fail-on-fire was given. 2: it could not run.
    3: no rule could be evaluated, of several runs: of one of them.

    Examples: `trainguard analyze ./my-job`, `trainguard analyze s3://my-profiles/my-job --out report`,
    `trainguard analyze ./my-job --out report --params stricter.json --fail-on-fire`,
    `trainguard analyze ./my-job --out report --rule my_rules.host_memory:HostMemory`
    """
    from trainguard.cli.commands.analyze.outcome import blocks_of, chosen_rules, document_of, documented
    from trainguard.cli.output.files import prepare, write_files
    from trainguard.cli.output.progress import stderr_progress
    from trainguard.cli.output.rendering import Line
    from trainguard.cli.output.result import CommandResult
    from trainguard.core.errors import RequestError
    from trainguard.local.runs import find_runs

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
        given, plan = chosen_rules(
            params=params,
            prices=prices,
            defaults=chosen,
            instance_type=instance_type,
            framework_expected=framework_expected,
            rule=rule,
        )
        found = find_runs(source)
        if out is not None:
            prepare(out)
        judge = partial(documented, given=given, plan=plan)
        if len(found.runs) > 1:
            from trainguard.cli.commands.analyze.several import several_outcomes

            return several_outcomes(source, found, judge, progress, out, defaults=chosen)
        outcome = judge(found.open_one(source), progress=progress)
    blocks = blocks_of(outcome)
    if out is not None:
        write_files(out, outcome.files)
        blocks.append(Line(f"Reports: {out}", whole=True))
    return CommandResult(
        document=document_of(outcome, reading=reading, defaults=chosen, out=out),
        blocks=blocks,
        notes=outcome.notes,
        fired=bool(outcome.fired),
        evaluated=outcome.evaluated,
    )
