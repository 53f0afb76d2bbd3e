"""A recorded job's profile as files: ``python -m demo.profile slow_data_loader my-job``.

`trainguard report` reads the folder; in the profile bucket of a deployed stack it is judged there, and its rule alerts.
"""

import argparse
import json
import sys
import time
from pathlib import Path

from demo.make_recordings import RECORDINGS
from demo.recording import Recording
from demo.samples import MINUTE_S


def write_profile(recording: Recording, folder: Path, *, ended_at: float) -> int:
    """Write a recording's objects, and ``job.json``, as if the job had ended by ``ended_at``; return how many."""
    start = int((ended_at - recording.ended_s) // MINUTE_S) * MINUTE_S
    written = 0
    for item in recording.objects(folder.name, start=start):
        path = folder.parent / item.key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(item.body)
        written += 1
    about = {
        "schema_version": 1,
        "name": folder.name,
        "status": "Completed",
        "instance_type": recording.instance_type,
        "instance_count": len(recording.nodes),
        "started_at": start,
        "ended_at": start + recording.ended_s,
        "profiling_interval_ms": recording.interval_ms,
    }
    (folder / "job.json").write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
    return written


def main() -> int:
    names = sorted(path.stem for path in RECORDINGS.glob("*.npz"))
    parser = argparse.ArgumentParser(prog="python -m demo.profile", description="Write a recorded job's profile")
    parser.add_argument("recording", choices=names)
    parser.add_argument("folder", type=Path, help="it is made, and its name is the job's")
    asked = parser.parse_args()
    folder: Path = asked.folder.resolve()
    if folder.exists():
        parser.error(f"{folder} is there already: name a folder that is not")
    written = write_profile(Recording.load(RECORDINGS / f"{asked.recording}.npz"), folder, ended_at=time.time())
    print(f"{written} objects and job.json in {asked.folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
