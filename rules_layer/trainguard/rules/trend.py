"""Whether a short series rises, and by how much: two tests on ranks and slopes that single outliers do not move.

Sources: H. B. Mann, "Nonparametric tests against trend" (1945), and M. G. Kendall, "Rank Correlation Methods" (1975),
for the test with the variance corrected for ties; P. K. Sen, "Estimates of the regression coefficient based on
Kendall's tau" (1968), for the slope.
"""

import numpy as np

from trainguard.telemetry.snapshots import FloatArray, IntArray


def mann_kendall_z(series: FloatArray) -> FloatArray:
    """Return the standard score of each series' rank correlation with time; positive where it rises.

    S is the number of rising pairs less that of falling ones, and (n (n-1) (2n+5) - sum of t (t-1) (2t+5)) / 18 its
    variance, with t the sizes of groups of equal values. Z = (S - sign S) / sqrt(variance): 0 for a constant series.

    Parameters
    ----------
    series : float64[G, n]
        One series a row, equally spaced in time, without NaN.

    Returns
    -------
    float64[G]
    """
    length = series.shape[1]
    earlier, later = _pairs(length)
    score = np.sign(series[:, later] - series[:, earlier]).sum(axis=1)
    # Every member of a group of t counts (t - 1) (2t + 5), so that the group as a whole counts t (t - 1) (2t + 5).
    tied = (series[:, :, np.newaxis] == series[:, np.newaxis, :]).sum(axis=2)
    ties = ((tied - 1) * (2 * tied + 5)).sum(axis=1)
    variance = (length * (length - 1) * (2 * length + 5) - ties) / 18.0
    z: FloatArray = (score - np.sign(score)) / np.sqrt(np.where(variance > 0.0, variance, 1.0))
    return z


def theil_sen_slope(series: FloatArray) -> FloatArray:
    """Return the median slope over all pairs of points of each series, per step of time.

    Parameters
    ----------
    series : float64[G, n]
        One series a row, equally spaced in time, n >= 2, without NaN.

    Returns
    -------
    float64[G]
    """
    earlier, later = _pairs(series.shape[1])
    slopes = np.sort((series[:, later] - series[:, earlier]) / (later - earlier), axis=1)
    pairs = slopes.shape[1]
    median: FloatArray = (slopes[:, (pairs - 1) // 2] + slopes[:, pairs // 2]) / 2.0
    return median


def _pairs(length: int) -> tuple[IntArray, IntArray]:
    """Return the places of all pairs of so many points, the earlier and the later one: int64[n (n - 1) / 2] each."""
    places = np.arange(length)
    earlier, later = np.nonzero(places[:, np.newaxis] < places)
    return earlier, later
