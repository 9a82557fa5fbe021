# SPDX-License-Identifier: Apache-2.0
"""A site's engine that stands in for real ones: its commands record their calls, and mount a folder."""

from __future__ import annotations

import subprocess
from pathlib import Path

from forebay.workflows.files.commands.site_commands import OPERATIONS, SiteCommands
from forebay.workflows.files.mounts import mount_at

__all__ = ["SiteEngine"]

_PROGRAM = """\
#!/bin/sh
# One call is one line: all that it was told. In a guest this machine's files are read-only.
folder={folder}
calls=$folder/calls
[ -w "$folder" ] || calls=/run/site-calls
if [ -e "$folder/hang.$FOREBAY_OPERATION" ]; then
    sleep 600 &
    echo "$!" > "$folder/child"
    echo "$$" > "$folder/leader.new"
    mv "$folder/leader.new" "$folder/leader"
    wait
fi
if [ -e "$folder/fail.$FOREBAY_OPERATION" ]; then
    echo "cannot $FOREBAY_OPERATION: the engine says no" >&2
    exit 3
fi
case "$FOREBAY_OPERATION" in
    start) echo "port 17" > "$FOREBAY_STATE.new" && mv "$FOREBAY_STATE.new" "$FOREBAY_STATE" ;;
    mount)
        if [ -w "$folder" ]; then
            mount --bind "$folder/tree" "$FOREBAY_MOUNT_POINT" || exit 1
        else
            mount -n -t hostfs -o "nosuid,nodev,$folder/tree" none "$FOREBAY_MOUNT_POINT" || exit 1
        fi ;;
    unmount)
        if grep -q " $FOREBAY_MOUNT_POINT " /proc/self/mountinfo; then umount "$FOREBAY_MOUNT_POINT" || exit 1; fi ;;
    fence)
        umask 022
        for job in "$folder"/tree/[0-9]*; do
            if [ -d "$job" ]; then echo "$FOREBAY_NODE" > "$job/fenced"; fi
        done ;;
esac
env | tr '\\n' '\\t' >> "$calls"
echo "$*" >> "$calls"
"""


class SiteEngine:
    """Its commands below a folder that root alone changes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.program = folder / "command"
        (folder / "tree").mkdir(parents=True)
        self.program.write_text(_PROGRAM.format(folder=folder))
        self.program.chmod(0o755)

    def commands(self, seconds: float = 20.0) -> SiteCommands:
        """As a site would fill them in."""
        return SiteCommands({operation: (str(self.program),) for operation in OPERATIONS}, {}, seconds)

    def configuration(self) -> str:
        """The same as a table."""
        lines = [f'{operation} = ["{self.program}"]' for operation in OPERATIONS]
        return "\n".join(["[files.commands]", *lines, ""])

    def calls(self) -> list[dict[str, str]]:
        """What each call was told, in order. "": its arguments."""
        try:
            lines = (self.folder / "calls").read_text().splitlines()
        except FileNotFoundError:
            return []
        found = []
        for line in lines:
            *words, arguments = line.split("\t")
            found.append({"": arguments, **dict(word.partition("=")[::2] for word in words)})
        return found

    def operations(self) -> list[str]:
        """The names of the calls, with the node where it says something."""
        return [
            f"{call['FOREBAY_OPERATION']} {call['FOREBAY_NODE']}"
            if call["FOREBAY_OPERATION"] in ("fence", "admit", "release")
            else call["FOREBAY_OPERATION"]
            for call in self.calls()
        ]

    def forget_calls(self) -> None:
        """From now on they are counted anew."""
        (self.folder / "calls").unlink(missing_ok=True)

    def set(self, switch: str, on: bool = True) -> None:
        """ "hang.OPERATION": it does not end; "fail.OPERATION": it fails."""
        path = self.folder / switch
        path.touch() if on else path.unlink(missing_ok=True)

    def unmount_all(self, *places: Path) -> None:
        """Whatever a test has left there."""
        for place in places:
            while mount_at(place) is not None:
                subprocess.run(["umount", "--lazy", str(place)], check=True)
