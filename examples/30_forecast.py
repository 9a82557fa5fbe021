# SPDX-License-Identifier: Apache-2.0
"""A forecast writes GRIB files into a reservation; each becomes a step, and a warm region is cut out as GRIB again.

Needs ``forebay[grib,xarray]``, a running instance and a reservation with room for files:

    forebay up && forebay create demo --capacity 64MiB --files 64MiB
    python examples/30_forecast.py demo

The same as commands, beside a model of your own:

    forebay follow demo:run --match 'fc????.grib2' --until end --exec forebay grib ingest {path} demo/fc
    forebay grib export demo/fc products
"""

import sys
import tempfile
import threading
from pathlib import Path

import eccodes
import numpy as np
import xarray as xr

import forebay
from forebay.connectors import grib

HOURS, LEVELS = range(7), (1000, 850, 500)


def forecast(folder: Path) -> None:
    """Stands for the model: a file for each hour, under another name until it is whole."""
    latitude, longitude = np.meshgrid(np.linspace(60, 30, 61), np.linspace(0, 30, 61), indexing="ij")
    for hour in HOURS:
        with (folder / "part").open("wb") as file:
            for level in LEVELS:
                message = eccodes.codes_grib_new_from_samples("GRIB2")
                for key, value in {
                    "Ni": 61,
                    "Nj": 61,
                    "latitudeOfFirstGridPointInDegrees": 60,
                    "latitudeOfLastGridPointInDegrees": 30,
                    "longitudeOfFirstGridPointInDegrees": 0,
                    "longitudeOfLastGridPointInDegrees": 30,
                    "iDirectionIncrementInDegrees": 0.5,
                    "jDirectionIncrementInDegrees": 0.5,
                    "dataDate": 20261127,
                    "dataTime": 0,
                    "step": hour,
                    "shortName": "t",
                    "typeOfLevel": "isobaricInhPa",
                    "level": level,
                }.items():
                    eccodes.codes_set(message, key, value)
                warm = np.exp(-((latitude - 45) ** 2 + (longitude - 5 - 2 * hour) ** 2) / 20)
                eccodes.codes_set_values(message, (220 + 0.07 * level + 10 * warm).reshape(-1))
                eccodes.codes_write(message, file)
                eccodes.codes_release(message)
        (folder / "part").rename(folder / f"fc{hour:04d}.grib2")
    (folder / "end").touch()


def main() -> None:
    (reservation,) = sys.argv[1:]
    with forebay.Admin() as admin:
        folder = Path(admin.reservation(reservation).files_path) / "run"
    folder.mkdir()
    model = threading.Thread(target=forecast, args=(folder,))
    model.start()
    # Started again after a kill, these lines go on where they were: no step is lost, and none is there twice.
    with forebay.follow_files(f"{reservation}:run", "fc????.grib2", "steps", until="end") as files:
        done = grib.ingest((file.path for file in files), f"{reservation}/fc")
    model.join()
    print(f"steps {done.written}, messages missing: {len(done.missing)}")

    dataset = xr.open_dataset(f"forebay://{reservation}/fc", engine="forebay", group="isobaricInhPa")
    low = dataset["t"].sel(isobaricInhPa=850)
    for step in low:
        place = step.isel(step.argmax(...))
        where = f"{place.latitude.item()} N, {place.longitude.item()} E"
        print(f"{str(step.time.values)[:16]}: {place.item():.2f} {low.attrs['units']} at {where}")

    # Back to GRIB, as read by every tool of the field.
    with forebay.open(f"{reservation}/fc") as stream, tempfile.TemporaryDirectory() as products:
        newest = stream.latest
        for packing in ("simple", "ieee"):
            path = Path(products, f"{packing}.grib2")
            grib.write_file(newest, path, packing=packing)
            print(f"step {newest.number} as {packing}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
