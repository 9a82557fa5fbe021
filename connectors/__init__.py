# SPDX-License-Identifier: Apache-2.0
"""Access to streams and reservations from the libraries that people already use.

Each module needs the extra of its name, for example ``pip install 'forebay[xarray]'``:

========== ==========================================================================
xarray     ``xr.open_dataset("forebay://RES/STREAM", engine="forebay", chunks={})``
derive     a stream that is computed from another one: ``derive("RES/A", "RES/B", expressions=…)``
dask       a function for each step on a cluster: ``map_steps(client, address, func)``
amrex      plotfiles of AMReX and BoxLib codes as steps: ``ingest(plotfiles, "RES/STREAM")``; needs no extra
chombo     Chombo's HDF5 plot files as steps: ``ingest(files, "RES/STREAM")``; needs the extra hdf5
netcdf     history files of WRF, MOM, NEMO as steps: ``ingest(files, "RES/STREAM")``; and ``export`` to one file
grib       GRIB files of a forecast as steps, and back: ``ingest(files, "RES/STREAM")``
fa         FA and LFI files likewise; needs epygram
arrow      blocks as tensors without a copy, particles and steps as tables
fsspec     the files of a reservation: ``fsspec.open("forebay://RES/files/PATH")``
ray        the steps as rows: ``read_stream("RES/STREAM")``
tomography scans as streams, reconstructed while they are taken
zarr       a stream as a read-only Zarr v3 store
========== ==========================================================================
"""
