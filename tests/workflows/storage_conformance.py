# SPDX-License-Identifier: Apache-2.0
"""The tests that Snakemake's storage interface has for plugins; run by Snakemake's own Python (test_storage_plugin.py).

``FOREBAY_ROOT`` names an instance with the reservation `wf`, whose stream `flow` has steps.
"""

import os
from pathlib import Path
from typing import Any

import pytest
import snakemake_storage_plugin_forebay as plugin  # type: ignore[import-untyped]
from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_storage_plugins.tests import TestStorageBase

import forebay


class ForebayStorage(TestStorageBase):  # type: ignore[misc]
    """What all of them share."""

    def get_storage_provider_cls(self) -> Any:
        return plugin.StorageProvider

    def get_storage_provider_settings(self) -> Any:
        return plugin.StorageProviderSettings()


class TestFiles(ForebayStorage):
    """Whole: stored, touched, retrieved and removed, files and folders."""

    __test__ = True
    files_only = False
    touch = True

    def get_query(self, tmp_path: Path) -> str:
        return "forebay://wf/files/results/test.txt"

    def get_query_not_existing(self, tmp_path: Path) -> str:
        return "forebay://wf/files/results/nothing.txt"

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can make what belongs to others")
    def test_a_link_of_another_user_leads_nowhere(self, tmp_path: Path) -> None:
        """Who has a share to write could have others remove, overwrite or read files of their own elsewhere."""
        with forebay.Admin() as admin:
            files = Path(admin.reservation("wf").files_path)
        private = tmp_path / "private"
        private.mkdir()
        (private / "test.txt").write_text("mine")
        way = files / "way"
        way.symlink_to(private)
        os.lchown(way, 1_900_000_000, 1_900_000_000)
        below = self._get_obj(tmp_path, "forebay://wf/files/way/test.txt")
        below.local_path().parent.mkdir(parents=True, exist_ok=True)
        below.local_path().write_text("other")
        for action in (below.exists, below.size, below.touch, below.remove, below.retrieve_object, below.store_object):
            with pytest.raises(WorkflowError, match="has put a link there"):
                action()
        assert (private / "test.txt").read_text() == "mine"
        way.unlink()


class TestSteps(ForebayStorage):
    """Steps are made by programs that write streams: retrieved only."""

    __test__ = True
    retrieve_only = True
    touch = True
    query = "forebay://wf/flow@3"

    def get_query(self, tmp_path: Path) -> str:
        return self.query

    def get_query_not_existing(self, tmp_path: Path) -> str:
        return self.query.replace("@3", "@17")


class TestStepsAsHdf5(TestSteps):
    query = "forebay://wf/flow@3?format=h5"


class TestStepsAsBp5(TestSteps):
    """A folder."""

    query = "forebay://wf/flow@3?format=bp5"


class TestStreams(TestSteps):
    query = "forebay://wf/flow"

    def get_query_not_existing(self, tmp_path: Path) -> str:
        return "forebay://wf/nothing"
