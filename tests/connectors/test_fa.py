# SPDX-License-Identifier: Apache-2.0
"""FA and LFI files become steps with the values and places that epygram reads in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import forebay
from forebay.errors import CorruptError, InvalidArgumentError, NotFoundError

pytest.importorskip("pyproj")  # before epygram, see forebay.connectors.fa
epygram = pytest.importorskip("epygram", reason="it is not installed: pip install epygram")
from forebay.connectors import fa  # noqa: E402
from tests.support.fa_files import NX, NY, write_file  # noqa: E402

FA_FIELDS = ("S001TEMPERATURE", "S002TEMPERATURE", "S003TEMPERATURE", "CLSTEMPERATURE", "P85000TEMPERATUR")


@pytest.fixture(autouse=True, scope="module")
def environment() -> None:
    epygram.init_env()


@pytest.fixture
def fc(reservation: str) -> str:
    return f"{reservation}/fc"


def theirs(path: Path, name: Any, **zone: str) -> tuple[np.ndarray[Any, Any], ...]:
    """What epygram reads: values, latitude, longitude."""
    file = epygram.formats.resource(str(path), "r")
    field = file.readfield(name)
    longitude, latitude = field.geometry.get_lonlat_grid(**zone)
    file.close()
    return field.getdata(**zone), latitude, longitude


def test_a_cycle_in_fa_files_is_what_epygram_reads_bit_by_bit(fc: str, tmp_path: Path) -> None:
    paths = {hour: tmp_path / f"ICMSHAROM+{hour:04d}" for hour in (0, 1)}
    for hour, path in paths.items():
        write_file(path, "FA", hour, FA_FIELDS)
    assert fa.ingest(paths.values(), fc, dtype="float64").written == [0, 1]
    assert fa.ingest(paths.values(), fc).passed_over == [0, 1]
    with forebay.open(fc, timeout=0) as stream:
        for hour, path in paths.items():
            step = stream[hour]
            assert step["hybrid/TEMPERATURE"].dims == ("hybrid", "y", "x")
            assert step["hybrid/hybrid"][...].tolist() == [1, 2, 3]
            found = {name: step["hybrid/TEMPERATURE"][level] for level, name in enumerate(FA_FIELDS[:3])}
            found |= {"CLSTEMPERATURE": step["FA/CLSTEMPERATURE"], "P85000TEMPERATUR": step["isobaricInPa/TEMPERATUR"]}
            for name, values in found.items():
                expected, latitude, longitude = theirs(path, name, subzone="CI")
                # The extension zone is cut off.
                assert expected.shape == (NY - 11, NX - 11)
                np.testing.assert_array_equal(values[...], expected)
                np.testing.assert_array_equal(step["latitude"][...], latitude)
                np.testing.assert_array_equal(step["longitude"][...], longitude)
            assert step["forecast_period"].item() == hour
            assert np.datetime64(int(step["time"]), "s") == np.datetime64("2026-11-27T12") + np.timedelta64(hour, "h")
            assert step.attributes["isobaricInPa/TEMPERATUR/level"] == 85000
            assert step.attributes["hybrid/TEMPERATURE/units"] == "K"
            assert step.attributes["FA/CLSTEMPERATURE/coordinates"].split()[-2:] == ["latitude", "longitude"]


def test_an_lfi_file_is_what_epygram_reads_bit_by_bit(fc: str, tmp_path: Path) -> None:
    path = tmp_path / "run.006.lfi"
    write_file(path, "LFI", 6, ["T2M"])
    fa.ingest([path], fc, dtype="float64")
    with forebay.open(fc, timeout=0) as stream:
        # The halo is cut off.
        expected, latitude, _ = theirs(path, ("T2M", 0), subzone="CI")
        assert expected.shape == (NY - 2, NX - 2)
        np.testing.assert_array_equal(stream[6]["LFI/T2M"][...], expected)
        np.testing.assert_array_equal(stream[6]["latitude"][...], latitude)


def test_a_choice_and_what_is_refused(fc: str, tmp_path: Path) -> None:
    path = tmp_path / "ICMSHAROM+0003"
    write_file(path, "FA", 3, FA_FIELDS)
    fa.ingest([path], fc, where={"name": ["CLSTEMPERATURE"]})
    with forebay.open(fc, timeout=0) as stream:
        assert [name for name in stream[3] if "TEMP" in name] == ["FA/CLSTEMPERATURE"]
        assert stream[3]["FA/CLSTEMPERATURE"].dtype == np.float32
    with pytest.raises(InvalidArgumentError, match="written without hybrid/TEMPERATURE"):
        fa.ingest([path], fc)
    with pytest.raises(InvalidArgumentError, match="no message matches"):
        fa.ingest([path], fc, where={"name": ["TEMPERATURE"]})
    content = path.read_bytes()
    (tmp_path / "cut").write_bytes(content[:5000])
    (tmp_path / "end").write_bytes(content[:-8])
    (tmp_path / "opened").write_bytes(content[:23] + b"\1" + content[24:])
    (tmp_path / "text").write_text("no FA file" * 10)
    for name, text in (("cut", "cut off"), ("end", "cut off"), ("opened", "not closed"), ("text", "no FA or LFI")):
        with pytest.raises(CorruptError, match=f"{text}.*{name}"):
            fa.ingest([tmp_path / name], fc)
    with pytest.raises(NotFoundError, match="no such file"):
        fa.ingest([tmp_path / "absent"], fc)
