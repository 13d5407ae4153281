"""The weather example: scores are the integrals that define them, the networks beat what is simpler, files are read."""

import itertools
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

import numpy as np
import onnxruntime
import pytest
from numpy.typing import NDArray
from scipy.special import ndtr

from redpebble.export.save_model import save_model
from redpebble.pruning.examples.weather.__main__ import baselines
from redpebble.pruning.examples.weather.ens10_files import SURFACE, Ens10Files
from redpebble.pruning.examples.weather.generated_fields import generated, generated_day
from redpebble.pruning.examples.weather.networks import unet
from redpebble.pruning.examples.weather.scores import crps, eecrps, extreme_forecast_index

Values = NDArray[np.float64]


def test_the_score_is_the_integral_that_defines_it() -> None:
    grid = np.linspace(-12, 12, 200_001)
    for mean, deviation, truth in ((0.0, 1.0, 0.3), (0.5, 0.7, -1.2)):
        expected = np.trapezoid((ndtr((grid - mean) / deviation) - (grid >= truth)) ** 2, grid)
        answers, came = np.array([[mean, deviation]], np.float32), np.array([truth], np.float32)
        assert crps(answers, came) == pytest.approx(expected, rel=1e-3)
        assert eecrps(answers, came, np.array([-0.5], np.float32)) == pytest.approx(expected / 2, rel=1e-3)


def test_the_extreme_forecast_index_is_its_integral() -> None:
    """Members that are normal around others' quantiles, against the integral by quadrature over probabilities."""
    rng = np.random.default_rng(0)
    climate = rng.standard_normal((1, 200_000))
    shares = (np.arange(100_000) + 0.5) / 100_000
    quantiles = np.quantile(climate[0], shares)
    for shift in (-1.0, 0.0, 0.7):
        members = 0.5 * rng.standard_normal((1, 100_000)) + shift
        lower = np.searchsorted(np.sort(members[0]), quantiles) / members.size
        expected = 2 / np.pi * ((shares - lower) / np.sqrt(shares * (1 - shares))).mean()
        # 19 quantiles and steps of a twentieth are what ENS-10 takes
        assert extreme_forecast_index(members, climate)[0] == pytest.approx(expected, abs=0.12)
    far = extreme_forecast_index(np.full((1, 10), 9.0), climate)[0]
    assert far == -extreme_forecast_index(np.full((1, 10), -9.0), climate)[0] > 0.75


@pytest.mark.parametrize("size", [(24, 16), (25, 12), (27, 20)])
def test_the_unet_answers_a_distribution_at_each_point(size: tuple[int, int], tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    save_model(unet(rng, rows=size[0], columns=size[1]), tmp_path / "unet.onnx")
    day = generated_day(rng, *size)
    session = onnxruntime.InferenceSession(tmp_path / "unet.onnx")
    (answers,) = session.run(None, {"x": day.features[None], "ensemble": day.ensemble[None]})
    assert answers.shape == (1, 2, *size)
    assert np.isfinite(answers).all()
    assert answers[0, 1].min() > 0


def _write_files(xarray: ModuleType, folder: Path, rng: np.random.Generator) -> Values:
    """Write two days of 1998 and one of 2016, 19 x 36 points, in the layout of ENS-10; return the members."""
    days = np.array(["1998-01-03", "1998-01-06", "2016-01-03"], "datetime64[ns]")
    north, east = np.linspace(90, -90, 19), np.arange(0, 360, 10.0)
    members = rng.normal(270, 5, (len(days), 10, 19, 36))
    axes = {"time": days, "lat": north, "lon": east}

    def write(name: str, values: Mapping[str, object], coordinates: Mapping[str, object]) -> None:
        data = {key: (tuple(coordinates), np.asarray(value, np.float32)) for key, value in values.items()}
        xarray.Dataset(data, coordinates).to_netcdf(folder / name, engine="h5netcdf")

    fields = {name: rng.standard_normal((len(days), 19, 36)) for name in SURFACE}
    write("ENS10_sfc_mean.nc", {**fields, "T2M": members.mean(axis=1)}, axes)
    write("ENS10_sfc_std.nc", {**fields, "T2M": members.std(axis=1)}, axes)
    sea = {**fields, "SSTK": np.where(north[:, None] > 0, np.nan, fields["SSTK"])}
    write("ENS10_sfc_mean_normalized.nc", sea, axes)
    write("ENS10_sfc_std_normalized.nc", fields, axes)
    # what came true has days of its own, and hours
    later = {**axes, "time": np.append(days, np.datetime64("2016-01-06")) + np.timedelta64(12, "h")}
    write("ERA5_sfc_t2m.nc", {"T2M": np.append(members[:, 0], members[:1, 0], axis=0)}, later)
    places = {"time": days[2:], "latitude": north, "longitude": east}
    write("efi_t2m.nc", {"efi": rng.uniform(-1, 1, (1, 19, 36))}, places)
    return members


def _write_members(folder: Path, members: Values) -> None:
    """Write the members two days before each day, messages as ECMWF has them."""
    eccodes = pytest.importorskip("eccodes")
    (folder / "ensemble").mkdir()
    grid = {"Ni": 36, "Nj": 19, "iDirectionIncrementInDegrees": 10, "jDirectionIncrementInDegrees": 10}
    grid |= {"latitudeOfFirstGridPointInDegrees": 90, "latitudeOfLastGridPointInDegrees": -90}
    grid |= {"longitudeOfFirstGridPointInDegrees": 0, "longitudeOfLastGridPointInDegrees": 350}
    labels = {"setLocalDefinition": 1, "localDefinitionNumber": 1, "stream": "enfo", "type": "pf", "stepRange": "48"}
    for date, values in zip((19980101, 19980104, 20160101), members, strict=True):
        with (folder / f"ensemble/output.sfc.{date}.grib").open("wb") as file:
            for name, number in itertools.product(("2t", "skt"), range(10)):
                message = eccodes.codes_grib_new_from_samples("regular_ll_sfc_grib1")
                own = {"dataDate": date, "shortName": name, "perturbationNumber": number + 1, "bitsPerValue": 24}
                for key, value in (grid | labels | own).items():
                    eccodes.codes_set(message, key, value)
                eccodes.codes_set_values(message, values[number].ravel() + (name == "skt"))
                eccodes.codes_write(message, file)


def test_files_of_ens10_are_read(tmp_path: Path) -> None:
    xarray = pytest.importorskip("xarray")
    pytest.importorskip("h5netcdf")
    members = _write_files(xarray, tmp_path, np.random.default_rng(0))
    files = Ens10Files(tmp_path, "t2m")
    assert [str(one) for one in files.days("train")] == ["1998-01-03", "1998-01-06"]
    (day,) = files.days("test")
    whole = files.day(day)
    assert whole.features.shape == (22, 19, 36)
    assert np.isfinite(whole.features).all()
    np.testing.assert_allclose(whole.ensemble, [members[2].mean(axis=0), members[2].std(axis=0)], rtol=1e-6)
    np.testing.assert_allclose(whole.truth, members[2, 0], rtol=1e-6)
    assert whole.extremes is not None
    with pytest.raises(ValueError, match=r"output.sfc.20160101.grib: expected a file of ENS-10, got none"):
        files.points("test", 8, np.random.default_rng(0))
    _write_members(tmp_path, members)
    points = files.points("test", 50, np.random.default_rng(1))
    assert points.features.shape == (50, 25)
    low, unit = points.unit
    own = points.members.astype(np.float64) * unit + low
    np.testing.assert_allclose(own.mean(axis=1), points.ensemble[:, 0], rtol=1e-5)
    np.testing.assert_allclose(own.std(axis=1), points.ensemble[:, 1], rtol=1e-2)
    np.testing.assert_allclose(own[:, 0], points.truth, rtol=1e-5)
    np.testing.assert_allclose(np.square(points.features[:, 22:]).sum(axis=1), 1, rtol=1e-5)


def test_what_is_no_folder_of_ens10_is_said(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="target: expected one of t2m, z500, t850, got 'rain'"):
        Ens10Files(tmp_path, "rain")
    pytest.importorskip("xarray")
    with pytest.raises(ValueError, match=r"ENS10_sfc_mean.nc: expected a file of ENS-10, got none"):
        Ens10Files(tmp_path, "t2m")


@pytest.mark.slow
def test_networks_beat_what_is_simpler() -> None:
    rng = np.random.default_rng(0)
    found = baselines(generated(20_000, rng), generated(10_000, rng, extremes=True), epochs=10)
    for one in range(2):
        assert max(found.dense[one] or 0, found.pruned[one] or 0) < (found.emos[one] or 0) < (found.raw[one] or 0)
    assert found.speedup > 1.5
