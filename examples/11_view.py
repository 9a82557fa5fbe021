# SPDX-License-Identifier: Apache-2.0
"""A scene in a TOML file, drawn as a movie while the simulation runs, and as a picture of its last step.

Needs ``forebay[viz]``, a running instance and a reservation:

    forebay up && forebay create demo --capacity 256MiB
    python examples/11_view.py demo/waves pictures

For a browser: ``forebay view demo/waves --scene pictures/scene.toml --web``
"""

import subprocess
import sys
from pathlib import Path

import numpy as np

import forebay

SCENE = """
title = "Two sources"
size = [640, 480]

[camera]
direction = [0.6, -1.4, 1.1]

[[layer]]
kind = "slice"
variable = "height"
axis = "z"
position = 0.5
range = [-1.0, 1.0]
colors = "coolwarm"

[[layer]]
kind = "surface"
variable = "height"
value = 0.6
color = [0.95, 0.75, 0.55]

[[layer]]
kind = "outline"
"""


def view(*arguments: str) -> list[str]:
    """The command line ``forebay view ...``."""
    return [sys.executable, "-P", "-m", "forebay", "view", *arguments]


def main() -> None:
    address, folder = sys.argv[1], Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    scene = folder / "scene.toml"
    scene.write_text(SCENE)
    movie = subprocess.Popen(view(address, "--scene", str(scene), "--movie", str(folder / "waves.mp4")))

    z, y, x = np.mgrid[:24, :48, :64].astype(np.float32)
    near, far = (np.sqrt((x - place) ** 2 + (y - 24) ** 2 + (z - 12) ** 2) for place in (16, 48))
    with forebay.open(address, mode="w") as stream:
        for number in range(12):
            with stream.step() as step:
                step["height"] = 0.5 * (np.sin(0.6 * near - 0.5 * number) + np.sin(0.6 * far - 0.5 * number))
                step["time"] = 0.5 * number
    if movie.wait() != 0:
        raise SystemExit("the movie failed")
    subprocess.run(view(f"{address}@11", "--scene", str(scene), "--out", str(folder / "last.png")), check=True)


if __name__ == "__main__":
    main()
