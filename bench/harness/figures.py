"""Medians, ratios and how sure they are."""

import random
import statistics

# Resamples of an interval; more don't change its second digit.
RESAMPLES = 10_000
# With fewer rounds an interval says more about chance than about the programs.
MIN_ROUNDS_TO_TELL = 5


def good(runs):
    """The runs whose copy is complete and right."""
    return [run for run in runs if not run["problems"]]


def median(runs, key):
    """The median of one figure of some runs."""
    return statistics.median(run[key] for run in runs)


def spread(values, digits=2):
    """median (min–max)"""
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f}–{max(values):.{digits}f})"


def ratio_interval(before, after):
    """The 95 % interval of median(after) ÷ median(before), by drawing rounds again and again.

    The two runs of a round stay together, since they share the machine's state of that time. The same
    input gives the same interval.
    """
    pairs = list(zip(before, after, strict=True))
    generator = random.Random(1)
    ratios = []
    for _ in range(RESAMPLES):
        drawn = generator.choices(pairs, k=len(pairs))
        ratios.append(statistics.median(b for _, b in drawn) / statistics.median(a for a, _ in drawn))
    ratios.sort()
    return ratios[int(RESAMPLES * 0.025)], ratios[int(RESAMPLES * 0.975)]


def compare(before, after):
    """Two programs' figures of the same rounds: medians, their ratio, how sure it is, and what that says."""
    a, b = statistics.median(before), statistics.median(after)
    interval = ratio_interval(before, after)
    words = verdict(b / a, interval, len(before))
    return {"a": a, "b": b, "ratio": b / a, "interval": interval, "verdict": words}


def verdict(ratio, interval, rounds):
    """What the interval says about B, in words."""
    if rounds < MIN_ROUNDS_TO_TELL:
        return f"too few rounds to tell (fewer than {MIN_ROUNDS_TO_TELL})"
    if interval[0] <= 1 <= interval[1]:
        return "no difference"
    return f"B takes {abs(ratio - 1):.1%} {'less' if ratio < 1 else 'more'}"
