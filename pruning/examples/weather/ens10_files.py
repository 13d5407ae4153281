"""ENS-10's own files: a folder as the scripts of its authors' repository prepare it; needs the extra `weather`.

```
ENS10_sfc_mean.nc, ENS10_sfc_std.nc, ENS10_sfc_mean_normalized.nc, ENS10_sfc_std_normalized.nc    time, lat, lon
ENS10_pl_mean.nc, ...                                                                        time, plev, lat, lon
ERA5_sfc_t2m.nc, ERA5_z500.nc, ERA5_t850.nc                                                  what came true
ensemble/output.sfc.YYYYMMDD.grib, ensemble/output.pl.YYYYMMDD.grib                          members, two days before
efi_t2m.nc, efi_z500.nc, efi_t850.nc                                                         if they are there
```
Forecasts of 48 hours from 1998 to 2015 are for training, those of 2016 and 2017 for tests.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from .forecasts import Array, Day, Forecasts, joined

XArray = Any
"""Anything of xarray, which is an extra and has no types here."""

Split = Literal["train", "test"]

YEARS_OF: Final[Mapping[Split, slice]] = MappingProxyType(
    {"train": slice("1998-01-01", "2015-12-31"), "test": slice("2016-01-01", "2017-12-31")}
)

LEAD: Final = np.timedelta64(48, "h")


@dataclass(frozen=True)
class Target:
    """A variable that is to be corrected, and what is read for it: the surface, or one pressure level in hPa."""

    kind: Literal["sfc", "pl"]
    level: int
    variables: tuple[str, ...]
    name: str
    in_grib: str
    truth: str
    least: float
    most: float
    """The usual range of its values, by which members are normalized."""


SURFACE: Final = ("SSTK", "TCW", "TCWV", "CP", "MSL", "TCC", "U10M", "V10M", "T2M", "TP", "SKT")
ALOFT: Final = ("Z", "T", "Q", "W", "D", "U", "V")

TARGETS: Final[Mapping[str, Target]] = MappingProxyType(
    {
        "t2m": Target("sfc", 0, SURFACE, "T2M", "t2m", "ERA5_sfc_t2m.nc", 218, 304),
        "z500": Target("pl", 500, ALOFT, "Z", "z", "ERA5_z500.nc", 48200, 58000),
        "t850": Target("pl", 850, ALOFT, "T", "t", "ERA5_t850.nc", 240, 299),
    }
)


class Ens10Files:
    """Forecasts of one target from a folder."""

    def __init__(self, folder: Path, target: str) -> None:
        """Open the files.

        Raises:
            ValueError: there is no such target, or a file is missing.
            ModuleNotFoundError: the extra `weather` is not installed.
        """
        if target not in TARGETS:
            raise ValueError(f"target: expected one of {', '.join(TARGETS)}, got {target!r}")
        self.folder, self.name, self.target = folder, target, TARGETS[target]
        self._xarray: XArray = import_module("xarray")
        prefix = f"ENS10_{self.target.kind}"
        self._mean, self._std = (self._level(f"{prefix}_{part}.nc")[self.target.name] for part in ("mean", "std"))
        self._means, self._stds = (self._level(f"{prefix}_{part}_normalized.nc") for part in ("mean", "std"))
        self._truth = self._level(self.target.truth)[self.target.name]
        extremes = folder / f"efi_{target}.nc"
        self._extremes: XArray = self._open(extremes.name)["efi"] if extremes.exists() else None

    def days(self, split: Split) -> NDArray[np.datetime64]:
        """Return the days for which there are forecasts and what came true."""
        forecast, truth = (one.time.sel(time=YEARS_OF[split]).values for one in (self._mean, self._truth))
        return np.intersect1d(_dates(forecast), _dates(truth))

    def day(self, day: np.datetime64) -> Day:
        """Return the forecast of a day on the whole grid; what is missing, such as sea on land, is 0."""
        values = [self._at(source[name], day) for name in self.target.variables for source in (self._means, self._stds)]
        ensemble = np.stack((self._at(self._mean, day), self._at(self._std, day)))
        return Day(np.nan_to_num(np.stack(values)), ensemble, self._at(self._truth, day), self._extremes_at(day))

    def points(self, split: Split, a_day: int, rng: np.random.Generator) -> Forecasts:
        """Return so many points of each day, as likely all over the grid.

        Raises:
            ValueError: there is no day, or the file with a day's members is missing.
        """
        days = self.days(split)
        if not len(days):
            raise ValueError(f"{self.folder}: expected forecasts and {self.target.truth} of common days, got none")
        return joined([self._points(day, a_day, rng) for day in days])

    def _points(self, day: np.datetime64, count: int, rng: np.random.Generator) -> Forecasts:
        whole, members = self.day(day), self._members(day)
        chosen = rng.integers(0, whole.truth.size, count)
        row, column = np.divmod(chosen, whole.truth.shape[1])
        latitude, longitude = (np.deg2rad(np.asarray(self._mean[axis], np.float64)) for axis in ("lat", "lon"))
        north, east = latitude[row], longitude[column]
        place = np.stack((np.sin(north), np.cos(north) * np.sin(east), np.cos(north) * np.cos(east)), axis=1)
        features = np.concatenate((whole.features[:, row, column].T, place.astype(np.float32)), axis=1)
        low, range_ = self.target.least, self.target.most - self.target.least
        return Forecasts(
            features,
            ((members[:, row, column].T - low) / range_).astype(np.float32),
            np.ascontiguousarray(whole.ensemble[:, row, column].T),
            whole.truth[row, column],
            None if whole.extremes is None else whole.extremes[row, column],
            (low, range_),
        )

    def _members(self, day: np.datetime64) -> Array:
        date = np.datetime_as_string(day - LEAD, unit="D").replace("-", "")
        path = f"ensemble/output.{self.target.kind}.{date}.grib"
        keys: dict[str, str | int] = {"shortName": {"t2m": "2t"}.get(self.target.in_grib, self.target.in_grib)}
        if self.target.level:
            keys["level"] = self.target.level
        data = self._open(path, engine="cfgrib", backend_kwargs={"indexpath": "", "filter_by_keys": keys})
        return np.asarray(data[self.target.in_grib].transpose("number", "latitude", "longitude"), np.float32)

    def _extremes_at(self, day: np.datetime64) -> Array | None:
        if self._extremes is None or day not in _dates(self._extremes.time.values):
            return None
        return self._at(self._extremes, day)

    def _at(self, values: XArray, day: np.datetime64) -> Array:
        index = int(np.searchsorted(_dates(values.time.values), day))
        return np.asarray(values.isel(time=index), np.float32)

    def _level(self, name: str) -> XArray:
        data = self._open(name)
        return data.sel(plev=100 * self.target.level) if "plev" in data.dims else data

    def _open(self, name: str, **words: XArray) -> XArray:
        path = self.folder / name
        if not path.exists():
            raise ValueError(f"{path}: expected a file of ENS-10, got none")
        return self._xarray.open_dataset(path, **(words or {"engine": "h5netcdf"}))


def _dates(times: XArray) -> NDArray[np.datetime64]:
    return np.asarray(times).astype("datetime64[D]")
