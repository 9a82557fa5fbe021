# SPDX-License-Identifier: Apache-2.0
"""Directives of a job as stages to run, each with a name by which the job's row remembers it."""

from __future__ import annotations

from forebay.manager.jobs import FilesJob, Job, StepsJob
from forebay.workflows.manager.job_table import JobRow
from forebay.workflows.slurm.directives import Directives, FileStage, parse_list
from forebay.workflows.slurm.users import read_as_user

__all__ = ["inward_stages", "outward_stages"]


async def inward_stages(job: JobRow) -> dict[str, Job]:
    """What is staged in before the job starts."""
    return await _file_stages(job, inward=True)


async def outward_stages(job: JobRow) -> dict[str, Job]:
    """What is staged out after the job has ended."""
    wishes = await _file_stages(job, inward=False)
    for number, stream in enumerate(Directives.from_json(job.directives).streams, start=1):
        wishes[f"stream {number}"] = StepsJob(
            stream=stream.stream if "/" in stream.stream else f"{_home(job)}/{stream.stream}",
            destination=stream.destination,
            every=stream.every,
            steps=stream.steps,
            format=stream.format,
        )
    return wishes


async def _file_stages(job: JobRow, *, inward: bool) -> dict[str, Job]:
    wishes: dict[str, Job] = {}
    direction = "in" if inward else "out"
    stages = [stage for stage in Directives.from_json(job.directives).files if stage.inward is inward]
    for number, stage in enumerate(stages, start=1):
        if stage.kind != "list":
            wishes[f"{direction} {number}"] = _files_job(job, stage)
            continue
        text = await read_as_user(stage.outside, job.owner_uid, job.owner_gid)
        for item, listed in enumerate(parse_list(stage, text), start=1):
            wishes[f"{direction} {number}.{item}"] = _files_job(job, listed)
    return wishes


def _files_job(job: JobRow, stage: FileStage) -> FilesJob:
    is_directory = stage.kind == "directory"
    scratch = "." if stage.persistent else job.token
    # DataWarp copies a directory's contents, and a file below the name that it has where only a folder is named.
    path = f"{scratch}/{stage.inside}" if stage.inside or not is_directory else scratch
    return FilesJob(
        reservation=stage.persistent or job.reservation,
        path=path,
        outside=stage.outside,
        inward=stage.inward,
        only="directory" if is_directory else "file",
    )


def _home(job: JobRow) -> str:
    """Where streams lie that are named without a reservation."""
    persistents = Directives.from_json(job.directives).persistents
    return job.reservation or (persistents[0] if len(persistents) == 1 else "")
