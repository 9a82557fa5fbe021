# SPDX-License-Identifier: Apache-2.0
"""Directives of a job as stages to run, each with a name by which the job's row remembers it."""

from __future__ import annotations

from dataclasses import replace

from forebay.manager.jobs import FilesJob, Job, MatchedFilesJob, StepsJob
from forebay.manager.records import JobRow
from forebay.workflows.directives.directive_parsing import parse_list
from forebay.workflows.directives.directives import Directives, FileStage, MatchedStage
from forebay.workflows.slurm.users import read_as_user

__all__ = ["following_stages", "inward_stages", "outward_stages", "with_unclean"]


async def inward_stages(job: JobRow) -> dict[str, Job]:
    """What is staged in before the job starts."""
    return await _file_stages(job, inward=True)


def following_stages(job: JobRow) -> dict[str, Job]:
    """What is staged out while the job runs, until it is asked to end."""
    matched = Directives.from_json(job.directives).matched
    return {f"follow {number}": _matched_job(job, stage, follow=True) for number, stage in enumerate(matched, start=1)}


async def outward_stages(job: JobRow, unclean_nodes: tuple[str, ...] = ()) -> dict[str, Job]:
    """What is staged out after the job has ended; receipts name the nodes that were not clean."""
    requests = await _file_stages(job, inward=False)
    for number, stream in enumerate(Directives.from_json(job.directives).streams, start=1):
        requests[f"stream {number}"] = StepsJob(
            stream=stream.stream if "/" in stream.stream else f"{_home(job)}/{stream.stream}",
            destination=stream.destination,
            every=stream.every,
            steps=stream.steps,
            format=stream.format,
        )
    # What those that follow have not taken: they may have failed, or had too little time.
    for number, matched in enumerate(Directives.from_json(job.directives).matched, start=1):
        requests[f"files {number}"] = _matched_job(job, matched, follow=False)
    return {name: with_unclean(request, unclean_nodes) for name, request in requests.items()}


def with_unclean(request: Job, nodes: tuple[str, ...]) -> Job:
    """The same stage, whose receipt names these nodes if it copies what they may have written."""
    return request if isinstance(request, StepsJob) else replace(request, unclean_nodes=nodes)


async def _file_stages(job: JobRow, *, inward: bool) -> dict[str, Job]:
    requests: dict[str, Job] = {}
    direction = "in" if inward else "out"
    stages = [stage for stage in Directives.from_json(job.directives).files if stage.inward is inward]
    for number, stage in enumerate(stages, start=1):
        if stage.kind != "list":
            requests[f"{direction} {number}"] = _files_job(job, stage)
            continue
        text = await read_as_user(stage.outside, job.owner_uid, job.owner_gid)
        for item, listed in enumerate(parse_list(stage, text), start=1):
            requests[f"{direction} {number}.{item}"] = _files_job(job, listed)
    return requests


def _files_job(job: JobRow, stage: FileStage) -> FilesJob:
    is_directory = stage.kind == "directory"
    # DataWarp copies a directory's contents, and a file below the name that it has where only a folder is named.
    scratch = _scratch(job, stage)
    path = f"{scratch}/{stage.inside}" if stage.inside or not is_directory else scratch
    return FilesJob(
        reservation=stage.persistent or job.reservation,
        path=path,
        outside=stage.outside,
        inward=stage.inward,
        only="directory" if is_directory else "file",
    )


def _matched_job(job: JobRow, stage: MatchedStage, *, follow: bool) -> MatchedFilesJob:
    return MatchedFilesJob(
        reservation=stage.persistent or job.reservation,
        path=f"{_scratch(job, stage)}/{stage.inside}",
        destination=stage.destination,
        match=stage.match,
        exclude=(stage.exclude,) if stage.exclude else (),
        complete=stage.complete,
        every=stage.every,
        multiple_of=stage.multiple_of,
        follow=follow,
    )


def _scratch(job: JobRow, stage: FileStage | MatchedStage) -> str:
    """The folder below the reservation's files that a stage's paths lie in."""
    return "." if stage.persistent else job.token


def _home(job: JobRow) -> str:
    """Where streams lie that are named without a reservation."""
    persistents = Directives.from_json(job.directives).persistents
    return job.reservation or (persistents[0] if len(persistents) == 1 else "")
