"""A rank's profile made small: what the join of a thousand ranks keeps of each."""

from msgspec.structs import replace

from trainguard.kernels.document import RankProfile

BRIEF_KERNELS = 50
"""As many as ranks are compared by."""

BRIEF_STEPS = 100
BRIEF_MEMORY = 20
BRIEF_LINES = 10
LONGEST_NAME = 300


def brief(profile: RankProfile) -> RankProfile:
    """Return a profile with what ranks are compared by, its findings and its sums; the rest is counted as left out."""
    rest = profile.kernels[BRIEF_KERNELS:]
    return replace(
        profile,
        steps=profile.steps[:BRIEF_STEPS],
        steps_left_out=profile.steps_left_out + len(profile.steps[BRIEF_STEPS:]),
        kernels=[
            replace(kernel, name=kernel.name[:LONGEST_NAME], operator=kernel.operator[:LONGEST_NAME])
            for kernel in profile.kernels[:BRIEF_KERNELS]
        ],
        kernels_left_out=profile.kernels_left_out + len(rest),
        kernels_left_out_ns=profile.kernels_left_out_ns + sum(each.total_ns for each in rest),
        kernels_left_out_count=profile.kernels_left_out_count + sum(each.count for each in rest),
        memory_operations=profile.memory_operations[:BRIEF_MEMORY],
        annotations=[],
        annotations_left_out=profile.annotations_left_out + len(profile.annotations),
        streams=[],
        streams_left_out=profile.streams_left_out + len(profile.streams),
        collectives=[],
        collectives_left_out=profile.collectives_left_out + len(profile.collectives),
        operators=[],
        operators_left_out=profile.operators_left_out + len(profile.operators),
        counters=[],
        critical_paths=[],
        host_utilization=[],
        step_times=None,
        quality=replace(
            profile.quality,
            missing=profile.quality.missing[:BRIEF_LINES],
            damaged=profile.quality.damaged[:BRIEF_LINES],
        ),
    )
