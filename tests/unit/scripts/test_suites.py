# SPDX-License-Identifier: Apache-2.0
"""What suites need is installed for them alone: its extras are in pyproject.toml, and no quick suite brings a host."""

from __future__ import annotations

import re

import pytest

from scripts.deep_shards import shards_of
from scripts.suites import ROOT, SUITES, When, requirements_of, suite_of


@pytest.mark.parametrize("name", sorted(SUITES))
def test_the_extras_of_a_suite_are_in_pyproject(name: str) -> None:
    assert bool(requirements_of(SUITES[name].extras)) == bool(SUITES[name].extras)


def test_an_extra_that_is_nowhere_is_refused() -> None:
    with pytest.raises(SystemExit, match="neither an extra nor a dependency group 'nothing'"):
        requirements_of(("nothing",))


def test_the_quick_suites_need_what_every_build_installs_and_no_more() -> None:
    assert [name for name, suite in SUITES.items() if suite.when is When.QUICK and suite.extras] == []
    build = (ROOT / "scripts" / "build").read_text(encoding="utf-8")
    (default,) = re.findall(r"^default_extras=\((.*)\)$", build, re.MULTILINE)
    names = {re.split(r"[\[<>=,]", requirement)[0] for requirement in requirements_of(tuple(default.split()))}
    hosts = {"xarray", "dask", "distributed", "ray", "pyarrow", "zarr", "fsspec", "scikit-image", "polars", "duckdb"}
    assert names & hosts == set()


def test_all_brings_every_extra() -> None:
    extras = ("viz", "web", "hdf5", "xarray", "dask", "ray", "arrow", "zarr", "fsspec", "snakemake", "tomography")
    assert requirements_of(("all",)) == requirements_of((*extras, "darshan", "derive", "netcdf"))


def test_the_suite_of_a_run_is_the_longest_that_its_name_begins_with() -> None:
    assert {name: suite_of(name) for name in SUITES} == {name: name for name in SUITES}
    for shard in shards_of():
        assert SUITES[suite_of(shard.name)].packages == shard.suite.packages, shard.name
        assert SUITES[suite_of(shard.name)].extras == shard.suite.extras, shard.name
