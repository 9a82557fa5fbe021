# SPDX-License-Identifier: Apache-2.0
"""The past of a stream: steps by number, parts of arrays, watermarks, how far behind a consumer is, going back.

Needs a running instance and a reservation:

    forebay up && forebay create demo --capacity 256MiB
    python examples/04_python_history.py demo/history
"""

import argparse

import numpy as np

import forebay


def main() -> None:
    parser = argparse.ArgumentParser(description="Write a stream and look back at it.")
    parser.add_argument("address", metavar="RES/STREAM")
    address = parser.parse_args().address

    with forebay.open(address, mode="w") as stream:
        for number in range(20):
            with stream.step() as writing:
                writing["density"] = np.full((8, 16, 16), float(number))

    with forebay.open(address) as stream:
        newest = stream.latest.summary
        print(f"newest step: {newest.number}, {forebay.format_size(newest.size_bytes)}, durable: {newest.durable}")
        print("a slab of step 17:", stream[17]["density"][2:4].mean())
        print("the last three steps:", [step.number for step in stream[-3:]], "of", len(stream))
        density = stream["density"]
        print("one point over time:", density[::5, 4, 8, 8], "in steps", density.steps[::5])

        with stream.follow(consumer="plot") as follower:
            for step in follower:
                if step.number == 11:
                    break
        # The step that the loop was left in has not been acknowledged.
        print("plot is behind by", stream.lag("plot"), "steps")
        stream.seek(18, consumer="plot")
        print("plot goes on with", [step.number for step in stream.follow(consumer="plot")])

        try:
            stream[99]
        except KeyError as error:
            print("no such step:", error)


if __name__ == "__main__":
    main()
