# SPDX-License-Identifier: Apache-2.0
"""Shows the newest published step in VisIt: ``visit -cli -nowin -s visit_follow.py`` in a folder for VisIt.

``forebay publish --for visit`` puts this file beside the index. It runs in VisIt's own Python 3 (VisIt 3.2 or newer),
where Forebay is not installed and VisIt's commands are global names. Each new step becomes the picture ``newest.png``
beside the index. It ends when the index has not changed for IDLE_SECONDS, or by Ctrl-C. It was not tried with a real
VisIt.
"""

import glob
import os
import time

FOLDER = os.path.dirname(os.path.abspath(globals().get("__visit_script_file__", globals().get("__file__", "x"))))
IDLE_SECONDS = float(os.environ.get("VISIT_FOLLOW_IDLE_SECONDS", "600"))
#: The variable to show; empty: the first one of the database.
VARIABLE = os.environ.get("VISIT_FOLLOW_VARIABLE", "")


def database():
    """The index: the only .visit file of the folder."""
    found = glob.glob(os.path.join(FOLDER, "*.visit"))
    if len(found) != 1:
        raise SystemExit(f"there must be one .visit file in {FOLDER}, not {len(found)}")
    return found[0]


def save_newest():
    """Draws the newest state to newest.png."""
    SetTimeSliderState(TimeSliderGetNStates() - 1)  # noqa: F821 - VisIt's
    settings = SaveWindowAttributes()  # noqa: F821
    settings.outputToCurrentDirectory = 0
    settings.outputDirectory = FOLDER
    settings.fileName = "newest"
    settings.family = 0
    settings.format = settings.PNG
    SetSaveWindowAttributes(settings)  # noqa: F821
    SaveWindow()  # noqa: F821


def follow():
    """Opens the index and draws its newest state whenever the index has changed."""
    index = database()
    OpenDatabase(index)  # noqa: F821
    variable = VARIABLE
    if not variable:
        variable = GetMetaData(index).GetScalars(0).name  # noqa: F821
    AddPlot("Pseudocolor", variable)  # noqa: F821
    DrawPlots()  # noqa: F821
    changed = os.stat(index).st_mtime_ns
    save_newest()
    quiet_since = time.monotonic()
    while time.monotonic() - quiet_since < IDLE_SECONDS:
        time.sleep(0.2)
        now = os.stat(index).st_mtime_ns
        if now != changed:
            changed = now
            CheckForNewStates(index)  # noqa: F821
            save_newest()
            quiet_since = time.monotonic()


follow()
