# SPDX-License-Identifier: Apache-2.0
"""The variables that a job's processes get."""

from __future__ import annotations

from pathlib import Path

from forebay.manager.records import JobRow
from forebay.workflows.directives.directives import Directives
from forebay.workflows.files.namespaces import private_folder, striped_folder
from forebay.workflows.slurm.job_files import JobFiles
from forebay.workflows.slurm.job_tokens import JobTokens
from forebay.workflows.slurm.settings import SlurmSettings

__all__ = ["JobEnvironment", "home_of"]


def home_of(job: JobRow, directives: Directives) -> str:
    """Where streams of the job lie that are named without a reservation; "": they have to be named with one."""
    return job.reservation or (directives.persistents[0] if len(directives.persistents) == 1 else "")


class JobEnvironment:
    """Those of one instance's jobs. Usable from several threads.

    Parameters
    ----------
    instance_variables : dict
        Those that find the instance and the plugin, the same for all.
    """

    def __init__(
        self,
        settings: SlurmSettings,
        tokens: JobTokens,
        instance_variables: dict[str, str],
        job_files: JobFiles,
    ) -> None:
        self._job_files = job_files
        self._settings = settings
        self._tokens = tokens
        self._instance_variables = instance_variables

    def of(self, job: JobRow) -> dict[str, str]:
        """The variables that the job's processes get: those that find the instance and the plugin, and its own."""
        directives = Directives.from_json(job.directives)
        variables = dict(self._instance_variables)
        if job.reservation:
            striped, private = self._scratch(job)
            variables["DW_JOB_STRIPED"] = f"{striped}/"
            if directives.private:
                variables["DW_JOB_PRIVATE"] = f"{private}/"
        for name in directives.persistents:
            variable = f"DW_PERSISTENT_STRIPED_{name.replace('-', '_').replace('.', '_')}"
            variables[variable] = f"{self._persistent_path(name)}/"
        home = home_of(job, directives)
        variables |= self._tokens.variables(job, home)
        return variables | ({"FOREBAY_RESERVATION": home} if home else {})

    def _scratch(self, job: JobRow) -> tuple[Path, Path]:
        """The striped and the private one. Where nodes mount them, no server is asked."""
        on_node = Path(self._settings.node_folder)
        if self._job_files.are_shown(job.reservation):
            return on_node / job.token, on_node / ".private" / job.token
        files = self._job_files.path(job.reservation)
        private = on_node / job.token if self._settings.node_folder else private_folder(files, job.token)
        return striped_folder(files, job.token), private

    def _persistent_path(self, name: str) -> Path:
        return self._mount_of(name) if self._job_files.are_shown(name) else self._job_files.path(name)

    def _mount_of(self, name: str) -> Path:
        """Where nodes mount it."""
        return Path(self._settings.node_folder) / ".mounts" / self._job_files.id_of(name)
