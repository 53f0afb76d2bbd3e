"""Draws the pictures of the architecture page: ``python -m docs.pictures.draw`` writes them beside this file."""

from collections.abc import Callable, Mapping
from pathlib import Path

from docs.pictures.canvas import Canvas

FOLDER = Path(__file__).parent


def data_flow() -> Canvas:
    """Return the way of an object from the training job to an alert and a report."""
    canvas = Canvas(
        "The path of one object",
        "A training job puts objects into the profile bucket. S3 sends a message to a queue, evaluate_objects brings"
        " NodeState and RuleState up to date, fires go to the fire state machine, the job's end to the report machine.",
        900,
        560,
    )
    job = canvas.box(20, 40, 150, 52, "training job\nwrites a profile", "outside")
    bucket = canvas.box(240, 40, 150, 52, "profile bucket\nobjects are the truth", "store")
    queue = canvas.box(460, 40, 150, 52, "evaluation queue\nbatches of 20 s", "box")
    evaluate = canvas.box(680, 40, 190, 52, "evaluate_objects\none parse, all rules", "function")
    node = canvas.box(680, 160, 190, 52, "NodeState\ncursor, state, outbox", "store")
    rows = canvas.box(680, 280, 190, 52, "RuleState\nwhat people read", "store")
    reconciler = canvas.box(460, 220, 150, 52, "reconcile_job\nscheduler asks, for each", "function")
    sagemaker = canvas.box(20, 160, 150, 52, "SageMaker\njob state changes", "outside")
    lifecycle = canvas.box(240, 160, 150, 52, "job_lifecycle", "function")
    jobs = canvas.box(240, 280, 150, 52, "Jobs\nsettings, status", "store")
    fire = canvas.box(460, 400, 190, 58, "fire state machine\nstop, alert, record", "box")
    report = canvas.box(240, 400, 150, 58, "report machine\nthe whole profile", "box")
    alert = canvas.box(710, 400, 160, 58, "alert topic\nmail, chat, machines", "people")
    verdict = canvas.box(460, 314, 150, 52, "verdict\nover HTTPS, if asked", "function")
    digest = canvas.box(710, 494, 160, 50, "weekly_digest\nof RuleState, if asked", "function")
    poll = canvas.box(240, 104, 150, 44, "poll_source\nif jobs name a source", "function")
    canary = canvas.box(20, 280, 150, 52, "canary\nonce a day", "function")
    page = canvas.box(20, 400, 150, 58, "report.html\nreport.json", "people")
    ops_items = canvas.box(240, 494, 150, 50, "open_ops_items\nbroken GPUs, if asked", "function")
    stop = canvas.box(460, 494, 190, 50, "StopTrainingJob\nwhere the job allows it", "outside")
    canvas.arrow(job.at("right"), bucket.at("left"), text="PUT")
    canvas.arrow(
        canary.at("right"),
        (205, 306),
        (205, 82),
        bucket.at("left", 0.8),
        text="a job of its own",
        at=(155, 348),
        later=True,
    )
    canvas.arrow(fire.at("bottom", 0.1), (479, 476), (315, 476), ops_items.at("top"))
    canvas.arrow(bucket.at("right"), queue.at("left"), text="message")
    canvas.arrow(queue.at("right"), evaluate.at("left"))
    canvas.arrow(evaluate.at("bottom"), node.at("top"), text="one conditional\nwrite a node", at=(722, 126))
    canvas.arrow(
        evaluate.at("top"), (775, 18), (315, 18), bucket.at("top"), text="GET; LIST before a gap", at=(545, 14)
    )
    canvas.arrow(node.at("bottom"), rows.at("top"), text="rows that changed", at=(718, 252))
    canvas.arrow(reconciler.at("right", 0.3), (645, 236), (645, 186), node.at("left"), text="")
    canvas.arrow(reconciler.at("right", 0.7), (645, 256), (645, 306), rows.at("left"))
    canvas.arrow(reconciler.at("top"), queue.at("bottom"), text="tasks: close, flush", at=(475, 150))
    canvas.arrow(rows.at("left", 0.85), verdict.at("right", 0.2))
    canvas.arrow(reconciler.at("left", 0.3), (418, 236), (418, 126), poll.at("right"))
    canvas.arrow(poll.at("top"), bucket.at("bottom"))
    canvas.arrow(reconciler.at("left"), (425, 246), (425, 306), jobs.at("right"))
    canvas.arrow(sagemaker.at("right"), lifecycle.at("left"), text="event", at=(192, 180))
    canvas.arrow(lifecycle.at("bottom"), jobs.at("top"))
    canvas.arrow(lifecycle.at("right", 0.3), (425, 176), (425, 76), queue.at("left", 0.7), text="")
    canvas.arrow(
        node.at("right"), (888, 186), (888, 375), (600, 375), fire.at("top", 0.74), text="outbox", at=(840, 370)
    )
    canvas.arrow(
        reconciler.at("bottom", 0.3), (505, 360), (315, 360), report.at("top"), text="the job's end", at=(408, 355)
    )
    canvas.arrow(fire.at("right"), alert.at("left"))
    canvas.arrow(digest.at("top"), alert.at("bottom"))
    canvas.arrow(fire.at("bottom"), stop.at("top"))
    canvas.arrow(
        fire.at("bottom", 0.1), (479, 480), (95, 480), page.at("bottom"), text="build_report, from state", at=(287, 476)
    )
    canvas.arrow(report.at("left"), page.at("right"))
    return canvas


def ordering() -> Canvas:
    """Return how the cursor decides what is applied."""
    canvas = Canvas(
        "What is applied, and when",
        "Minutes of one node on a line: applied up to the cursor, the next one at once, later ones wait until the"
        " newest seen is 120 s ahead; before a gap is jumped S3 is listed.",
        900,
        300,
    )
    canvas.words(20, 28, "One node's objects, a minute each, in the order of event time")
    states = ("applied", "applied", "applied", "missing", "waits", "waits", "to come")
    names = ("12:00", "12:01", "12:02", "12:03", "12:04", "12:05", "12:06")
    kinds = ("function", "function", "function", "outside", "box", "box", "outside")
    boxes = [
        canvas.box(20 + 124 * place, 60, 112, 46, f"{name}\n{state}", kind)
        for place, (name, state, kind) in enumerate(zip(names, states, kinds, strict=True))
    ]
    canvas.arrow((boxes[2].at("bottom")[0], 148), boxes[2].at("bottom"), text="cursor", at=(boxes[2].at("top")[0], 164))
    canvas.arrow(
        (boxes[5].at("bottom")[0], 148), boxes[5].at("bottom"), text="newest seen", at=(boxes[5].at("top")[0], 164)
    )
    canvas.arrow((boxes[3].at("bottom")[0], 148), boxes[3].at("bottom"), text="gap", at=(boxes[3].at("top")[0], 164))
    canvas.box(20, 196, 205, 80, "minute = cursor + 60 s\nis applied at once", "function")
    canvas.box(
        237,
        196,
        205,
        80,
        "minute ≤ newest less 120 s\na gap: LIST once, apply what\nS3 has, jump only what it lacks",
        "box",
    )
    canvas.box(454, 196, 205, 80, "minute ≤ cursor\nduplicate, or late\nif it was jumped: counted", "outside")
    canvas.box(671, 196, 209, 80, "silent 5 min, or the end\nLIST, apply all that is there", "store")
    return canvas


def fire_machine() -> Canvas:
    """Return the fire state machine: no step keeps another from running."""
    canvas = Canvas(
        "One fire",
        "MarkFired, DecideStop, StopJob, SendAlert, RecordAlert; StartReport starts the report's own execution. Where"
        " there is a grace time the alert is a warning, and a second decision comes at its end. An alert waits for the"
        " end of quiet hours. What was not sent is sent again at the end, where a redrive begins; what else failed is"
        " named.",
        900,
        420,
    )
    mark = canvas.box(20, 40, 120, 46, "MarkFired\nrecord_fire", "function")
    decide = canvas.box(180, 40, 150, 46, "DecideStop\nopt-in, switch, age", "function")
    stop = canvas.box(370, 40, 150, 46, "StopJob\nrecord, stop, record", "function")
    send = canvas.box(560, 34, 150, 58, "SendAlert\nor SendBareAlert,\nwhere it cannot run", "people")
    record = canvas.box(760, 40, 120, 46, "RecordAlert\nrecord_fire", "function")
    report = canvas.box(760, 130, 120, 46, "StartReport\nreport machine", "function")
    agent = canvas.box(370, 130, 150, 46, "AwaitAgent\non a cluster", "outside")
    quiet = canvas.box(560, 130, 150, 46, "AwaitQuietEnd\nquiet hours", "outside")
    grace = canvas.box(180, 220, 340, 46, "AwaitGraceEnd\nafter the warning of a stop", "outside")
    unsent = canvas.box(560, 284, 150, 46, "SendUnsent\nwhat was not sent", "people")
    done = canvas.box(760, 220, 120, 30, "IsDone", "box")
    failed = canvas.box(760, 284, 120, 58, "StepFailed\nnames each step;\nan alarm fires", "outside")
    canvas.arrow(mark.at("right"), decide.at("left"))
    canvas.arrow(decide.at("right"), stop.at("left"))
    canvas.arrow(stop.at("right"), send.at("left"))
    canvas.arrow(stop.at("bottom", 0.3), agent.at("top", 0.3))
    canvas.arrow(agent.at("top", 0.7), stop.at("bottom", 0.7), later=True)
    canvas.arrow(send.at("right"), record.at("left"))
    canvas.arrow(record.at("bottom"), report.at("top"))
    canvas.arrow(report.at("bottom"), done.at("top"))
    canvas.arrow(done.at("left"), (540, 235), (540, 243), grace.at("right"), text="grace", at=(640, 228))
    canvas.arrow((255, 220), decide.at("bottom"), text="decide again", at=(300, 200))
    canvas.arrow(done.at("left", 0.2), (735, 226), (735, 153), quiet.at("right"), later=True)
    canvas.arrow(quiet.at("top"), send.at("bottom"), later=True)
    canvas.arrow(done.at("left", 0.8), (735, 244), (735, 307), unsent.at("right"))
    canvas.arrow(done.at("bottom"), failed.at("top"))
    canvas.words(
        20,
        356,
        "Steps are retried; what fails for good is noted and passed by: the alert goes out although the stop failed,"
        "\nand says so. Follow-ups, an escalation or an end, and faults of settings begin at SendAlert."
        "\nAn alert that was not sent fails the execution in SendUnsent: a redrive repeats that alone, and records it."
        "\nThe execution's name is made of rule, fire and job: a second start of one fire is refused.",
    )
    return canvas


def report_machine() -> Canvas:
    """Return the report state machine."""
    canvas = Canvas(
        "One full report",
        "PlanReport lists nodes, days and keys; a Map digests each of them; BuildReport puts the parts together; the"
        " parts are deleted. The report of a fire is built from state, and its place recorded.",
        900,
        340,
    )
    plan = canvas.box(20, 90, 140, 56, "PlanReport\nnodes, days, keys", "function")
    canvas.room(200, 20, 330, 190, "Map: up to 40 at once, inline or distributed")
    digest = canvas.box(
        240, 46, 200, 70, "DigestProfile\nDigestProfileOfMany distributed\nreads until 14 min, then a part", "function"
    )
    again = canvas.box(240, 145, 200, 46, "anything left?\ncalled again", "box")
    build = canvas.box(580, 90, 140, 56, "BuildReport\nstate + parts", "function")
    drop = canvas.box(750, 60, 130, 46, "DropParts", "function")
    files = canvas.box(750, 130, 130, 56, "report.html\nreport.json", "people")
    canvas.arrow(plan.at("right"), (200, 118))
    canvas.arrow(digest.at("bottom"), again.at("top"))
    canvas.arrow(again.at("right"), (475, 168), (475, 81), digest.at("right"), text="yes", at=(492, 130))
    canvas.arrow((530, 118), build.at("left"))
    canvas.arrow(build.at("right", 0.3), drop.at("left"))
    canvas.arrow(build.at("right", 0.7), files.at("left"))
    plain = canvas.box(580, 200, 140, 46, "BuildFromState\nwithout time lines", "function")
    row = canvas.box(750, 280, 130, 46, "RecordFire\nthe rule's row", "function")
    canvas.arrow(plan.at("bottom"), (90, 230), plain.at("left", 0.65), text="no plan", at=(130, 246), later=True)
    canvas.arrow(build.at("bottom"), plain.at("top"), text="failed", at=(675, 176), later=True)
    canvas.arrow(plain.at("right"), (815, 223), files.at("bottom"), later=True)
    fire = canvas.box(580, 280, 110, 46, "a fire\nor a hang", "people")
    canvas.arrow(fire.at("top"), (635, 246))
    canvas.arrow(plain.at("bottom", 0.85), (699, 303), row.at("left"), text="of a fire", at=(722, 264))
    return canvas


def kernels_machine() -> Canvas:
    """Return the state machine of kernel profiles."""
    canvas = Canvas(
        "One capture",
        "PlanCapture lists a capture's traces and those without a digest; a Map digests each of them; JoinCapture puts"
        " the ranks together, writes page and verdict, and has the evaluator take in the verdict.",
        900,
        210,
    )
    plan = canvas.box(20, 80, 150, 56, "PlanCapture\ntraces, digests", "function")
    canvas.room(210, 20, 280, 166, "Map: up to 40 at once, inline or distributed")
    digest = canvas.box(240, 66, 220, 84, "DigestTrace\nDigestTraceOfMany distributed\none trace, streamed", "function")
    join = canvas.box(530, 80, 150, 56, "JoinCapture\nall ranks", "function")
    page = canvas.box(730, 30, 150, 56, "kernels.html\nkernels.json", "people")
    verdict = canvas.box(730, 124, 150, 56, "verdict.json\na task: flush", "store")
    canvas.arrow(plan.at("right"), digest.at("left"))
    canvas.arrow(digest.at("right"), join.at("left"))
    canvas.arrow(join.at("right", 0.3), page.at("left"))
    canvas.arrow(join.at("right", 0.7), verdict.at("left"))
    return canvas


def ownership() -> Canvas:
    """Return who writes which state."""
    canvas = Canvas(
        "Who owns which state",
        "job_lifecycle writes Jobs; evaluate_objects writes a node's item and rows; reconcile_job writes the job's own"
        " item and rows; the fire state machine writes columns of its own in a row. What is no job's is in"
        " Bookkeeping.",
        900,
        340,
    )
    lifecycle = canvas.box(20, 30, 190, 46, "job_lifecycle\na job's events", "function")
    evaluate = canvas.box(20, 106, 190, 46, "evaluate_objects\na node's objects", "function")
    reconciler = canvas.box(20, 182, 190, 46, "reconcile_job\nscheduler asks every minute", "function")
    fire = canvas.box(20, 258, 190, 46, "fire state machine\na fire", "box")
    jobs = canvas.box(400, 30, 220, 46, "Jobs\na job: settings, status, episodes", "store")
    node = canvas.box(400, 94, 220, 46, "NodeState: algo-1#system\nversion, cursor, state, outbox", "store")
    own = canvas.box(400, 158, 220, 46, "NodeState: *#job\nepisodes and outbox of the job", "store")
    of_node = canvas.box(660, 126, 220, 46, "RuleState: Rule#algo-1\nthe rule on a node", "people")
    of_job = canvas.box(
        660,
        220,
        220,
        84,
        "RuleState: Rule\nthe rule on the job\nand FireId, Action…, Stop…,\nAlertId, ReportUri",
        "people",
    )
    canvas.arrow(lifecycle.at("right"), jobs.at("left"))
    canvas.arrow(evaluate.at("right", 0.5), node.at("left", 0.6), text="where Version is as read", at=(318, 140))
    canvas.arrow(
        evaluate.at("right", 0.2),
        (260, 115),
        (340, 66),
        jobs.at("left", 0.8),
        text="first meeting",
        at=(258, 98),
        later=True,
    )
    canvas.arrow(node.at("right", 0.6), (640, 122), (640, 149), of_node.at("left"))
    canvas.arrow(reconciler.at("right", 0.4), own.at("left", 0.6), text="where Version is as read", at=(300, 182))
    canvas.arrow(reconciler.at("right", 0.8), (360, 219), (360, 240), of_job.at("left", 0.24))
    canvas.arrow(fire.at("right", 0.3), of_job.at("left", 0.62), text="columns of its own", at=(318, 256))
    books = canvas.box(400, 284, 220, 46, "Bookkeeping: Purpose, Id\nmarks, counts, requests", "store")
    canvas.arrow(fire.at("right", 0.8), (300, 295), (300, 307), books.at("left"))
    return canvas


def organisation() -> Canvas:
    """Return what crosses accounts."""
    canvas = Canvas(
        "An organisation",
        "send_statements of an account puts each job as a whole on the central bus; keep_statement keeps the newest in"
        " the central tables, which draw_fleet makes a page of. decide_stop asks admit_stop before a stop.",
        900,
        230,
    )
    canvas.room(16, 20, 390, 196, "each account and Region")
    canvas.room(430, 20, 454, 196, "the central account")
    tables = canvas.box(30, 60, 150, 52, "Jobs, RuleState\nof the account", "store")
    send = canvas.box(220, 60, 170, 52, "send_statements\neach hour and finding", "function")
    keep = canvas.box(450, 60, 150, 52, "keep_statement\nunless a later is there", "function")
    kept = canvas.box(630, 60, 124, 52, "Jobs, RuleState\nof all", "store")
    draw = canvas.box(780, 60, 96, 52, "draw_fleet\nthe page", "function")
    decide = canvas.box(220, 146, 170, 52, "decide_stop\nno answer: no stop", "function")
    admit = canvas.box(450, 146, 150, 52, "admit_stop\ncounts all stops", "function")
    canvas.arrow(tables.at("right"), send.at("left"))
    canvas.arrow(send.at("right"), keep.at("left"), text="bus", at=(405, 78))
    canvas.arrow(keep.at("right"), kept.at("left"))
    canvas.arrow(kept.at("right"), draw.at("left"))
    canvas.arrow(decide.at("right"), admit.at("left"), text="asks", at=(402, 164))
    return canvas


PICTURES: Mapping[str, Callable[[], Canvas]] = {
    "data-flow": data_flow,
    "ordering": ordering,
    "fire-machine": fire_machine,
    "report-machine": report_machine,
    "kernels-machine": kernels_machine,
    "ownership": ownership,
    "organisation": organisation,
}


def main() -> None:
    """Write all pictures."""
    for name, draw in PICTURES.items():
        (FOLDER / f"{name}.svg").write_text(draw().svg(), encoding="utf-8")


if __name__ == "__main__":
    main()
