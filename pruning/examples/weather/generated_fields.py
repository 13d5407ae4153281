"""Forecasts that are drawn, on a grid like that of ENS-10: an ensemble that is biased and too sure of itself.

Bias and uncertainty depend on place, season and other variables. Nothing here says anything about real weather.
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .forecasts import LATITUDES, LONGITUDES, MEMBERS, VARIABLES, Day, Forecasts
from .scores import extreme_forecast_index

Doubles = NDArray[np.float64]

SMOOTH: Final = 4
"""Deviation of the bell by which noise is smoothed, in points of the grid."""

YEARS: Final = 20
"""Draws of a place and season that its climate is made of."""


class Places(NamedTuple):
    """Latitudes, longitudes and seasons [points], as angles."""

    latitude: Doubles
    longitude: Doubles
    season: Doubles


class Draw(NamedTuple):
    """Truth [points], and members of all variables [points, 11, 10], temperature first."""

    truth: Doubles
    members: Doubles


def generated(count: int, rng: np.random.Generator, *, extremes: bool = False) -> Forecasts:
    """Return forecasts at random points of the grid and times of the year, with extreme forecast indices if asked."""
    latitude = (rng.integers(0, LATITUDES, count) / (LATITUDES - 1) - 0.5) * np.pi
    longitude = rng.integers(0, LONGITUDES, count) / LONGITUDES * 2 * np.pi
    places = Places(latitude, longitude, rng.uniform(0, 2 * np.pi, count))
    draw = _drawn(places, rng.standard_normal((count, VARIABLES)), rng)
    summary = np.stack((draw.members.mean(axis=2), draw.members.std(axis=2)), axis=2).reshape(count, 2 * VARIABLES)
    place = np.stack((latitude, np.sin(longitude), np.cos(places.season)), axis=1)
    climate = np.concatenate([_usual(places, rng) for _ in range(YEARS)], axis=1) if extremes else None
    return Forecasts(
        np.concatenate((summary, place), axis=1).astype(np.float32),
        draw.members[:, 0].astype(np.float32),
        summary[:, :2].astype(np.float32),
        draw.truth.astype(np.float32),
        None if climate is None else extreme_forecast_index(draw.members[:, 0], climate),
    )


def generated_day(rng: np.random.Generator, latitudes: int = LATITUDES, longitudes: int = LONGITUDES) -> Day:
    """Return the forecast of a day on a grid, whose variables vary over some hundred kilometres."""
    angles = (np.linspace(-0.5, 0.5, latitudes) * np.pi, np.arange(longitudes) / longitudes * 2 * np.pi)
    latitude, longitude = (one.ravel() for one in np.meshgrid(*angles, indexing="ij"))
    places = Places(latitude, longitude, np.full(latitude.size, rng.uniform(0, 2 * np.pi)))
    fields = [_smooth(rng.standard_normal((latitudes, longitudes))) for _ in range(VARIABLES)]
    state = np.stack([(one / one.std()).ravel() for one in fields], axis=1)
    draw = _drawn(places, state, rng)
    summary = np.stack((draw.members.mean(axis=2), draw.members.std(axis=2)), axis=2).reshape(-1, 2 * VARIABLES)
    features = summary.T.reshape(2 * VARIABLES, latitudes, longitudes).astype(np.float32)
    return Day(features, features[:2], draw.truth.reshape(latitudes, longitudes).astype(np.float32))


def _smooth(noise: Doubles) -> Doubles:
    """Return noise that varies over `SMOOTH` points, around the globe and from pole to pole."""
    rows, columns = (np.fft.fftfreq(noise.shape[0])[:, np.newaxis], np.fft.rfftfreq(noise.shape[1]))
    damping = np.exp(-2 * np.square(np.pi * SMOOTH) * (np.square(rows) + np.square(columns)))
    return np.fft.irfft2(np.fft.rfft2(noise) * damping, s=noise.shape)


def _usual(places: Places, rng: np.random.Generator) -> Doubles:
    """Return members of temperature at these places and seasons in another year."""
    return _drawn(places, rng.standard_normal((len(places.latitude), VARIABLES)), rng, others=False).members[:, 0]


def _drawn(places: Places, state: Doubles, rng: np.random.Generator, *, others: bool = True) -> Draw:
    """Return the forecasts of a state [points, 11]; without `others` of temperature alone."""
    latitude, longitude, season = places
    count = len(latitude)
    uncertainty = 0.4 + 0.3 * np.abs(state[:, 1]) + 0.2 * np.cos(latitude) * (1 + np.sin(season))
    climate = np.cos(latitude) * 2 + 0.6 * np.sin(latitude) * np.cos(season)
    truth = climate + state[:, 0] + 0.4 * np.tanh(state[:, 2] * state[:, 3]) + uncertainty * rng.standard_normal(count)
    bias = 0.5 * np.sin(3 * longitude) * np.cos(2 * latitude) + 0.4 * np.maximum(state[:, 4], 0) * np.cos(season)
    members = (climate + state[:, 0] + bias)[:, np.newaxis] + 0.5 * uncertainty[:, np.newaxis] * rng.standard_normal(
        (count, MEMBERS)
    )
    if not others:
        return Draw(truth, members[:, np.newaxis])
    noise = 0.3 * rng.standard_normal((count, VARIABLES - 1, MEMBERS))
    return Draw(truth, np.concatenate((members[:, np.newaxis], state[:, 1:, np.newaxis] + noise), axis=1))
