"""``python -m tests.verdicts.kernels [FORM]``: planted faults that are named, healthy trainings with a finding."""

import sys

from tests.verdicts.kernels.forms import FORMS
from tests.verdicts.kernels.scoring import PYTORCH, SECOND, table

if __name__ == "__main__":
    for form in sys.argv[1:] or [PYTORCH, SECOND, *FORMS]:
        sys.stdout.write(table(form) + "\n")
