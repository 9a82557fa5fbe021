# SPDX-License-Identifier: Apache-2.0
"""A simulation writes steps while `forebay publish` makes files of them that ParaView, VisIt and yt follow.

Needs ``forebay[viz]``, a running instance and a reservation:

    forebay up && forebay create demo --capacity 256MiB
    python examples/10_publish_for_paraview.py demo/bump plots

Open ``plots/bump.pvd`` in ParaView, and reload it (File > Reload Files) to see new steps.
"""

import subprocess
import sys
from pathlib import Path

import numpy as np
from vtkmodules.vtkIOXML import vtkXMLImageDataReader

import forebay


def main() -> None:
    address, folder = sys.argv[1], Path(sys.argv[2])
    publisher = subprocess.Popen(
        [sys.executable, "-P", "-m", "forebay", "publish", address, str(folder), "--for", "paraview"]
    )

    z, y, x = np.mgrid[:24, :24, :48].astype(np.float32)
    with forebay.open(address, mode="w") as stream:
        stream.attributes["spacing"] = 0.1
        for number in range(6):
            with stream.step() as step:
                step["density"] = np.exp(-((x - 8 * number) ** 2 + (y - 12) ** 2 + (z - 12) ** 2) / 40)
                step["time"] = 0.5 * number
    if publisher.wait() != 0:
        raise SystemExit("forebay publish failed")

    # What a VTK program sees of the last step.
    reader = vtkXMLImageDataReader()
    reader.SetFileName(str(folder / "bump.000005.vti"))
    reader.Update()
    image = reader.GetOutput()
    left, right = image.GetBounds()[:2]
    highest = image.GetCellData().GetArray("density").GetRange()[1]
    print(f"{image.GetNumberOfCells()} cells from {left:g} to {right:g}: at most {highest:.2f}")


if __name__ == "__main__":
    main()
