"""``trainguard replay``."""

import time
from pathlib import Path
from typing import Annotated

import typer

from trainguard.cli.command import Result, command
from trainguard.cli.options import Params, Prices, Where, argument, option, out_option


@command(fails_on_fire=True, loads_rules=("rules_package",))
def replay(
    source: Annotated[
        str, argument("JOB", "A training job's name, s3://bucket/prefix/<job>, or a folder with its profile.")
    ],
    *,
    params: Params = None,
    prices: Prices = None,
    label: Annotated[str | None, option("--as", "NAME", "Call it <job>@replay-NAME; else by the time.")] = None,
    out: Annotated[Path | None, out_option("Folder for its report; else ./<name>-report.")] = None,
    report: Annotated[bool, typer.Option("--report", help="Write its report into the bucket too.")] = False,
    where: Where,
    as_json: bool,
) -> Result:
    """Evaluate an old job with today's rules and parameters, and show what would have changed.

    Its rows get the name <job>@replay-<time>. It sends no alert and stops nothing.

    Examples: `trainguard replay my-job`, `trainguard replay my-job --params stricter.json --as stricter`,
    `trainguard replay s3://my-profiles/jobs/my-job --report --json`
    """
    from trainguard.cli.commands.replay import stored_replay as replays
    from trainguard.cli.output.files import output_path, prepare, write_report
    from trainguard.cli.output.progress import stderr_progress
    from trainguard.cli.services.deployment import connect_for, target_of
    from trainguard.engine.jobs.replay_names import replay_label, replay_name
    from trainguard.local.settings import prices_from, rule_settings
    from trainguard.report.job.build import build_report, put_files

    settings, table = rule_settings(params), prices_from(prices)
    target = target_of(source)
    deployment = connect_for(target, where)
    subject = replays.find_subject(target, deployment)
    name = replay_name(subject.job, replay_label(time.time()) if label is None else label)
    if deployment.stores.jobs.load(name) is not None:
        raise replays.taken(name)
    published = replays.bucket_place(name, subject) if report else None
    folder, only = output_path(out, name)
    prepare(folder)
    progress = stderr_progress(shown=not as_json)
    done, made = replays.judge(name, subject, progress, settings=settings, prices=table, now=time.time())
    built = build_report(done.job, done.records, now=time.time(), plan=done.plan, digests=done.digests)
    files, page, written = write_report(folder, only, built)

    def publish() -> None:
        if published is not None:
            put_files(deployment.stores.objects, *published, files)

    replays.store(made, deployment.stores, publish)
    return replays.replay_result(made, subject, built.report, page, written, published)
