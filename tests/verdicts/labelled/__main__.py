"""`python -m tests.verdicts.labelled [PATTERN ...]`: prints how good verdicts are, on all jobs or those so named."""

import sys
from fnmatch import fnmatch

from tests.verdicts.labelled.catalogue.everything import JOBS
from tests.verdicts.labelled.running import figures_of
from tests.verdicts.labelled.table import table

if __name__ == "__main__":
    patterns = sys.argv[1:] or ["*"]
    chosen = [job for job in JOBS if any(fnmatch(job.name, pattern) for pattern in patterns)]
    sys.stdout.write(table(figures_of(chosen)))
