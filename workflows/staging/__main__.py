# SPDX-License-Identifier: Apache-2.0
"""One stage as a process: ``python -m forebay.workflows.staging JOB [--root DIR]``, JOB being its JSON; events go to
standard output.

With ``--lifeline`` the process ends when its standard input does, so that it never outlives the manager that started
it. A byte there asks a stage that follows files to end with what is complete.
"""

from __future__ import annotations

import ctypes

_PR_SET_DUMPABLE = 4
# Before anything else: from here on, other processes of the same user neither read this one's memory and environment,
# nor take its descriptors.
if __name__ == "__main__" and ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
    raise SystemExit("the stage's process cannot be closed to others")

# ruff: noqa: E402
import argparse
import json
import os
import signal
import sys
import threading
from typing import NoReturn

from forebay.errors import ForebayError
from forebay.instance import Instance
from forebay.manager.jobs import MatchedFilesJob, StepsJob, job_from_json
from forebay.workflows.staging.end_request import EndRequest
from forebay.workflows.staging.files import stage_files
from forebay.workflows.staging.matched_files import stage_matched_files
from forebay.workflows.staging.merged import stage_into_one
from forebay.workflows.staging.reporting import JsonReporter, describe_failure
from forebay.workflows.staging.steps import stage_steps


def main() -> int:
    """Does the stage; 0 if it succeeded, 1 if it failed (the last event says why), 143 if it was told to stop."""
    parser = argparse.ArgumentParser(prog="python -m forebay.workflows.staging", description=__doc__)
    parser.add_argument("job", metavar="JOB", help="the job as JSON")
    parser.add_argument("--root", help="the instance's root; default: the one that the environment names")
    parser.add_argument("--lifeline", action="store_true", help="end when standard input ends")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, _stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in a terminal is the client's affair.
    ending = EndRequest()
    if arguments.lifeline:
        threading.Thread(target=_obey_standard_input, args=(ending,), daemon=True).start()
    reporter = JsonReporter(sys.stdout)
    try:
        job = job_from_json(json.loads(arguments.job))
        instance = Instance.below(arguments.root) if arguments.root else None
        if isinstance(job, StepsJob) and job.into:
            result = stage_into_one(job, reporter, instance)
        elif isinstance(job, StepsJob):
            result = stage_steps(job, reporter, instance)
        elif isinstance(job, MatchedFilesJob):
            result = stage_matched_files(job, reporter, instance, ending)
        else:
            result = stage_files(job, reporter, instance)
    except (ForebayError, OSError) as error:
        reporter.failed(describe_failure(error))
        return 1
    except Exception as error:
        reporter.failed(describe_failure(error))
        raise
    reporter.done(result)
    return 0


def _stop(number: int, frame: object) -> NoReturn:
    """Unwinds, so that what is half written is removed."""
    sys.exit(128 + number)


def _obey_standard_input(ending: EndRequest) -> None:
    """What comes there asks a stage that follows to end. When nothing can come any more, the process ends."""
    while os.read(0, 4096):
        ending.make()
    # The manager is gone; the next one starts this stage again and removes what is half written.
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
