# SPDX-License-Identifier: Apache-2.0
"""History files of a model as a stream while it runs: each file is taken when it is closed, each record once.

Needs ``forebay[netcdf,xarray]``, a running instance and a reservation with room for files:

    forebay up && forebay create demo --capacity 256MiB --files 64MiB
    python examples/29_history.py demo

The model writes netCDF files of two records each into ``files/out`` of the reservation. The same by a command, a file
at a time: ``forebay follow demo:out --match 'ocean_*.nc' --complete closed --until finished --exec forebay netcdf
ingest {path} demo/history``.
"""

import shutil
import sys
import threading
from pathlib import Path

import netCDF4
import numpy as np
import xarray as xr

import forebay
from forebay.connectors import netcdf
from forebay.connectors.xarray import follow

FILES = 4
LATITUDES, LONGITUDES = 60, 120


def model(folder: Path) -> None:
    """A warm spot that drifts east, one record in six hours, packed in 16 bits."""
    y, x = np.mgrid[:LATITUDES, :LONGITUDES]
    for number in range(FILES):
        with netCDF4.Dataset(folder / f"ocean_{number}.nc", "w") as file:
            for name, extent in {"time": None, "lat": LATITUDES, "lon": LONGITUDES}.items():
                file.createDimension(name, extent)
            file.createVariable("time", "f8", ("time",)).units = "hours since 2026-11-01"
            file.createVariable("lat", "f4", ("lat",))[:] = np.linspace(-59, 59, LATITUDES)
            file.createVariable("lon", "f4", ("lon",))[:] = np.arange(LONGITUDES) * 3
            file.createVariable("depth", "f4", ("lat", "lon"))[:] = 4000 + 10 * y
            surface = file.createVariable("sst", "i2", ("time", "lat", "lon"), fill_value=-32768)
            surface.setncatts({"units": "degC", "scale_factor": 0.001, "add_offset": 15.0})
            for record in range(2):
                hour = 6 * (2 * number + record)
                file["time"][record] = hour
                surface[record] = 15 + 10 * np.exp(-(((x - 20 - hour) / 10) ** 2) - ((y - 30) / 10) ** 2)
    (folder / "finished").touch()


def ingest(reservation: str) -> None:
    with forebay.follow_files(f"{reservation}:out", "ocean_*.nc", complete="closed", until="finished") as files:
        written = netcdf.ingest((file.path for file in files), f"{reservation}/history")
    print(f"{written} records of {FILES} files are steps")


def main() -> None:
    (reservation,) = sys.argv[1:]
    with forebay.Admin() as admin:
        folder = Path(admin.reservation(reservation).files_path) / "out"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    work = [threading.Thread(target=model, args=(folder,)), threading.Thread(target=ingest, args=(reservation,))]
    for thread in work:
        thread.start()

    # A consumer that knows nothing of files.
    for step in follow(f"{reservation}/history"):
        warmest = step["sst"].where(step["sst"] == step["sst"].max(), drop=True)
        print(f"{str(step['time'].values)[:13]}: {float(warmest.max()):.1f} degC at {float(warmest['lon'][0]):.0f} E")
    for thread in work:
        thread.join()

    # All steps at once, as xarray reads the files.
    with xr.open_dataset(f"forebay://{reservation}/history", engine="forebay") as stream:
        for number in range(FILES):
            with xr.open_dataset(folder / f"ocean_{number}.nc") as file:
                part = stream.isel(step=slice(2 * number, 2 * number + 2))
                assert part["sst"].values.tobytes() == file["sst"].values.tobytes()
                assert part["depth"].values.tobytes() == file["depth"].values.tobytes()
        print(f"{dict(stream['sst'].sizes)}, bit by bit as in the files")
    netcdf.export(f"{reservation}/history", folder / "all.nc")
    with netCDF4.Dataset(folder / "all.nc") as file:
        print(f"all.nc: {file['sst'].dtype} {dict(zip(file['sst'].dimensions, file['sst'].shape, strict=True))}")


if __name__ == "__main__":
    main()
