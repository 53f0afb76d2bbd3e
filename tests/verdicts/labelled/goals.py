"""What the figures must reach."""

# Least share of strong, and of medium, faults that some finding shows.
FOUND = 1.0

# Largest share of healthy jobs on which a rule fires.
HEALTHY_FIRES = 0.01

# Least share of healthy jobs, short ones too, that the verdict calls healthy.
CALLED_HEALTHY = 0.95

# Least share of jobs with a fault in which the planted cause stands first.
PLANTED_FIRST = 0.97

# Most pairs of jobs whose severities stand in the wrong order.
OUT_OF_ORDER = 0

# Most samplings of a job, from 0.1 to 60 s, that give another main finding.
LOST_BY_INTERVAL = 0

# Most checks of the findings' times, places, kinds and losses, and of the ledger, that do not hold.
UNTRUE = 0

# Most findings beside a planted fault that nothing planted explains.
UNEXPLAINED = 0

# How far an episode's start and end may lie from the truth, and in sampling intervals on top of that:
START_WITHIN_S = 300.0

START_WITHIN_INTERVALS = 5.0

# How far what a finding claims may be from the planted loss, as a share of it, and by a point of the paid time.
LOSS_WITHIN = 0.25

LEDGER_WITHIN = 0.01
# How far a bucket of the ledger may be from the truth, as a share of the paid time, and by so many samples on top.
LEDGER_SAMPLES = 10

# How many times as long another job may last before it fails that everyone agrees which is more severe.
MORE_SEVERE_BY = 2.0

# How much more of the paid time one job must lose than another that everyone agrees which is more severe.
MORE_SEVERE_BY_SHARE = 0.08

# The share of the paid time that a job must lose to be more severe than one at a risk of unknown time.
#
# A GPU with uncorrectable ECC errors has cost nothing yet, and may end the job at any time.
MORE_SEVERE_THAN_A_RISK = 0.25

# Scores that differ by less are equal.
SCORE_WITHIN = 1.0

FAILS_SOON_H = 1.0
# A fault that ends the job within these hours is more severe than one that costs at most this share of the time.
SMALL_LOSS = 0.10

# How many times as much a fault must have cost as another of the same job to come before it.
MORE_SEVERE_COST = 1.5
