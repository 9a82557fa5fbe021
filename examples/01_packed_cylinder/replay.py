# SPDX-License-Identifier: Apache-2.0
"""A consumer that comes late: replays the stream from the oldest step kept, then follows it to its end.

Writes DIR/replay.json: for each step its number and the CRC-32C of its velocity.

    python replay.py run1/flow --out results
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

import forebay


def main() -> int:
    """Replays and follows; 0 when the stream has ended."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stream", help="RESERVATION/STREAM of the simulation")
    parser.add_argument("--out", type=Path, default=Path(), help="folder for replay.json")
    parser.add_argument("--consumer", default="latecomer", help="name that the position is kept under")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    steps: list[dict[str, Any]] = []
    try:
        with forebay.open(options.stream) as stream:
            info = stream.info
            for step in stream.follow(options.consumer, start="oldest"):
                if not steps:
                    print(f"joined: {info.oldest} is the oldest step kept, {info.committed} the newest", flush=True)
                velocity = np.ascontiguousarray(step["velocity"][...])
                steps.append({"step": step.number, "velocity_crc32c": forebay.crc32c(velocity.data)})
                print(f"step {step.number}", flush=True)
    except forebay.ForebayError as error:
        print(f"replay: {error}", file=sys.stderr)
        return 1
    document = {"oldest": info.oldest, "committed": info.committed, "steps": steps}
    (options.out / "replay.json").write_text(json.dumps(document, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
