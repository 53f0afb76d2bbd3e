"""The words of TrainingDiverged."""

from trainguard.rules.rule_result import FactSheet, Words
from trainguard.rules.training.step_words import filled

NO_FINDING = ("fine", "moves", "earns", "breaks")

_NAN = (
    "Go back to a checkpoint before these steps: NaN does not go away by itself. Scale inputs and targets to "
    "about 1, lower the learning rate, clip gradients, and look for NaN in the data, a division by zero or the "
    "logarithm of zero."
)
_RISE = (
    "Go back to a checkpoint before the rise. Lower the learning rate or its peak from there on, lengthen the "
    "warm-up, clip gradients, and check the data of these steps."
)
_SINCE = (
    "; after step {risen_after_step} {least} {loss_least_since:.6g}, with a mean of {loss_last:.6g}, above the "
    "threshold {loss_last.threshold:.6g}"
)
_BROKEN = "{values_not_finite.series} of mode {mode} "
SAID = {
    "fine": (
        "{loss_first.series} is {loss_last:.6g}, and was {loss_first:began}; no loss is broken or has risen for good"
    ),
    "moves": "no loss is broken; where the objective is {objective}, its level says little",
    "earns": (
        "{reward_first.series} was {reward_first:began} and is {reward_last:ended}; it has not lost what it had gained"
    ),
    "reward lost": (
        "{reward_first.series} was {reward_first:began} and {reward_best:.6g} at its best; after step "
        "{fallen_after_step} it was never above {reward_most_since:.6g}, below the threshold "
        "{reward_most_since.threshold:.6g}"
    ),
    "kl exploded": (
        "{kl_first.series} was {kl_first:began}; after step {since_step} it was never below {kl_since:.6g}, above the "
        "threshold {kl_since.threshold:.6g}, and the reward is not better for it"
    ),
    "updates too large": (
        "{kl_first.series} was {kl_first:began} and typically {kl_typical:.6g}, above the threshold "
        "{kl_typical.threshold:.6g}: each update makes another policy"
    ),
    "entropy gone": (
        "{entropy_first.series} was {entropy_first:began}; after step {since_step} its size was never above "
        "{entropy_since:.6g}, below the threshold {entropy_since.threshold:.6g}, and the reward is not better for it"
    ),
    "generator lost": (
        "{generator_first.series} was {generator_first:began}; after step {since_step} it was never below "
        "{generator_since:.6g}, above the threshold {generator_since.threshold:.6g}, and "
        "{discriminator_first.series}, which was {discriminator_first:began}, was never above "
        "{discriminator_most_since:.6g}"
    ),
    "not finite": (_BROKEN + "{was/is} NaN or infinite {where}, {values_not_finite:counted recorded value}"),
    "breaks": (
        _BROKEN + "{was/is} NaN or infinite {where}, {values_not_finite:counted recorded value}; it counts from "
        "{values_not_finite.threshold} in a row on, or where validation is not finite either"
    ),
    "was not finite": (
        _BROKEN + "was NaN or infinite in {values_not_finite:,} of {values:,} recorded values, at first at step "
        "{first_bad_step}"
    ),
    "zero": (
        "{zeros.series} {was/is} exactly zero from step {first_bad_step} to {last_bad_step}, {zeros:counted recorded "
        "value}, after {loss_before_zero:.6g}: a trainer that leaves out NaN writes zero"
    ),
    "lost": (
        "{loss_first.series} was {loss_first:began} and {loss_lowest:.6g} at its lowest (step {loss_lowest_step})"
        + _SINCE
    ),
    "blown up": "{loss_first.series} was {loss_first:began}" + _SINCE,
    "exploded": ("{loss_first.series} was {loss_at_first_step:.6g} at step {loss_first_step}" + _SINCE),
    "unbounded": (
        "{loss_first.series} {fell/falls} without bound: it was {loss_first:began} and {loss_half_way:.6g} half-way "
        "(step {half_way_step}), and {was/is} {loss_last:.6g}"
    ),
    "score lost": (
        "{score_most_since.series} had a mean of {score_best:.4g} over its best fifth of the run; after step "
        "{fallen_after_step} it was never above {score_most_since:.4g}, below the threshold "
        "{score_most_since.threshold:.4g}, and the loss rose"
    ),
}
_ADVICE = {
    "not finite": _NAN,
    "was not finite": _NAN,
    "zero": _NAN,
    "unbounded": (
        "A loss with a minimum does not do that. Check its sign, that targets lie in the range that the loss expects, "
        "and that what it gets are probabilities or logits, as it expects."
    ),
    "reward lost": (
        "Go back to the checkpoint of the best reward. Lower the learning rate, bound each update (a smaller clip "
        "range or target of the divergence), and check that the reward says what it should."
    ),
    "kl exploded": (
        "Go back to a checkpoint before the rise. Raise the coefficient of the divergence or lower its target, and "
        "lower the learning rate."
    ),
    "updates too large": (
        "Lower the learning rate by orders of magnitude, take fewer epochs over a batch, clip ratios and gradients, "
        "and stop an update at a target of its divergence."
    ),
    "entropy gone": (
        "Go back to a checkpoint with entropy: a policy that always does the same finds nothing better. Raise the "
        "coefficient of the entropy or the temperature, and lower the learning rate."
    ),
    "generator lost": (
        "Go back to a checkpoint before the discriminator won. Lower its learning rate, train it less often, "
        "regularise it (a gradient penalty, label smoothing), or take a loss that does not saturate."
    ),
}
_OVER = {
    "not finite": (
        "The loss is finite again, so the weights survived these steps. Check that a loss scaler skipped them; if none "
        "did, look at their batches for NaN, a division by zero or the logarithm of zero."
    ),
    "zero": "The loss is not zero any more. Check what the trainer did in these steps.",
}
_CAME_BACK = (
    "The run came back by itself. Check the learning rate, its warm-up and the data of these steps: a lower peak or "
    "clipped gradients avoid the next time."
)
_CLAUSES = {
    "not finite": "the loss became NaN or infinite",
    "was not finite": "the loss was NaN or infinite for a good part of the run",
    "zero": "the loss became exactly zero, as trainers write NaN",
    "unbounded": "the loss fell without bound",
    "score lost": "training lost what it had learned",
    "reward lost": "the policy lost the reward that it had gained",
    "kl exploded": "the policy left its reference",
    "updates too large": "the updates of the policy were too large to learn from",
    "entropy gone": "the policy lost its entropy before it learned",
    "generator lost": "the discriminator won, and the generator learns nothing",
}


def diverged_words(sheet: FactSheet) -> Words:
    kind = sheet.kind
    known = kind != "fine" or sheet.get("loss_first") is not None
    bad = [int(each.value) for name in ("first_bad_step", "last_bad_step") for each in sheet.all(name)]
    where = f"at step {bad[0]}" if len({*bad}) == 1 else "from step {} to {}".format(*bad) if bad else ""
    means = sheet.get("loss_first_values")
    least = "it was never below" if means is None else f"no mean of its groups of {means.value:,} values was below"
    sentence = filled(sheet, SAID[kind], where=where, least=least) if known else "no loss is broken"
    if kind == "fine" and sheet.get("values_not_finite") is not None:
        sentence += filled(
            sheet,
            "; {values_not_finite:counted value} of it {was} NaN or infinite, the first at step {first_bad_step}",
            was="was" if sheet["values_not_finite"].value == 1 else "were",
        )
    reason = f"Step {sheet['step'].value}: {sentence}."
    if kind in NO_FINDING:
        return Words(reason)
    advice = _OVER.get(kind, _CAME_BACK) if sheet.past else _ADVICE.get(kind, _RISE)
    return Words(reason, advice, _CLAUSES.get(kind, "training diverged"))
