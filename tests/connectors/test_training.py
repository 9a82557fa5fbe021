# SPDX-License-Identifier: Apache-2.0
"""Samples for training follow a running stream by Forebay's cursor."""

from __future__ import annotations

import multiprocessing
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import forebay
from forebay.connectors.training import StreamSamples
from tests.connectors.conftest import temperature
from tests.support.time_limits import seconds


def numbers_of(samples: StreamSamples) -> list[int]:
    return [sample["step"] for sample in samples]


def test_samples_are_the_steps(flow: str) -> None:
    samples = list(StreamSamples(flow, ["T", "time", "label"]))
    assert [sample["step"] for sample in samples] == [0, 1, 2, 3, 4, 5]
    assert list(samples[0]) == ["step", "commit_time", "T", "time", "label"]
    for number, sample in enumerate(samples):
        np.testing.assert_array_equal(sample["T"], temperature(number))
        assert (float(sample["time"]), sample["label"]) == (0.5 * number, f"step {number}")
        sample["T"] += 1  # it belongs to the caller
    everything = next(iter(StreamSamples(flow)))
    assert set(everything) == {"step", "commit_time", "T", "time", "label", "mesh/level", "grows", "sometimes"}


def test_texts_of_a_sample_are_what_loaders_make_batches_of(reservation: str) -> None:
    def produce(rank: int) -> None:
        with forebay.open(f"{reservation}/texts", "w", rank=rank, ranks=2, group="ranks") as stream:
            for number in range(2):
                with stream.step() as step:
                    step.write("label", f"step {number}")
                    step.write("hosts", f"n{rank}", kind="local_value")
                    if rank == 0:
                        step["T"] = np.zeros(3)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(produce, range(2)))
    samples = list(StreamSamples(f"{reservation}/texts"))
    for number, sample in enumerate(samples):
        assert type(sample["label"]) is str
        assert (sample["label"], sample["hosts"]) == (f"step {number}", ["n0", "n1"])
        assert {type(host) for host in sample["hosts"]} == {str}
    data = pytest.importorskip("torch.utils.data")
    batch = data.default_collate(samples)
    assert batch["label"] == ["step 0", "step 1"]
    assert batch["T"].shape == (2, 3)


def test_samples_of_an_open_stream_and_of_a_run(flow: str) -> None:
    with forebay.open(flow) as stream:
        assert numbers_of(StreamSamples(stream, ["T"])) == [0, 1, 2, 3, 4, 5]
        assert numbers_of(pickle.loads(pickle.dumps(StreamSamples(stream, ["T"])))) == [0, 1, 2, 3, 4, 5]
    with pytest.raises(forebay.DeadlineExceededError):
        numbers_of(StreamSamples(flow, ["T"], run="another", timeout=0.2))


def test_samples_come_while_the_stream_runs(reservation: str) -> None:
    address = f"{reservation}/live"
    seen: list[float] = []
    first = threading.Event()

    def train() -> None:
        for mean in StreamSamples(address, ["T"], transform=lambda sample: sample["T"].mean(), timeout=seconds(60)):
            seen.append(float(mean))
            first.set()

    with forebay.open(address, mode="w") as stream:
        training = threading.Thread(target=train)
        training.start()
        with stream.step() as step:
            step["T"] = np.full(100, 1.0)
        assert first.wait(60)
        assert stream.info.status == "live"
        with stream.step() as step:
            step["T"] = np.full(100, 2.0)
    training.join(60)
    assert seen == [1.0, 2.0]


def test_training_goes_on_behind_the_last_sample_that_was_used(flow: str) -> None:
    samples = StreamSamples(flow, ["time"], consumer="train")
    for sample in samples:
        if sample["step"] == 3:
            break  # a crash in the middle of sample 3
    assert numbers_of(samples) == [3, 4, 5]
    assert numbers_of(samples) == []


def test_workers_of_one_consumer_share_the_steps(flow: str) -> None:
    samples = StreamSamples(flow, ["time"], consumer="train", distribution="on_demand", timeout=seconds(60))
    assert pickle.loads(pickle.dumps(samples)).variables == ["time"]
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(numbers_of, (samples,)) == [0, 1, 2, 3, 4, 5]


def test_steps_that_do_not_fit_are_told(flow: str) -> None:
    with pytest.raises(forebay.VariableNotFoundError, match=r"no variable 'sometimes'.*samples take.*@1"):
        list(StreamSamples(flow, ["sometimes"]))
    with pytest.raises(forebay.InvalidArgumentError, match=r"a sequence of names, not one text: write \['T'\]"):
        StreamSamples(flow, "T")
    with pytest.raises(forebay.ArgumentTypeError, match=r"follow\(\) has no option 'shuffle'"):
        list(StreamSamples(flow, shuffle=True))


def test_pytorch_loads_them(flow: str) -> None:
    data = pytest.importorskip("torch.utils.data", reason="PyTorch is not installed")
    samples = StreamSamples(flow, ["T", "time"])
    assert isinstance(samples, data.IterableDataset)
    batches = list(data.DataLoader(samples, batch_size=2))
    assert [batch["step"].tolist() for batch in batches] == [[0, 1], [2, 3], [4, 5]]
    np.testing.assert_array_equal(batches[2]["T"][1].numpy(), temperature(5))


def test_workers_of_a_loader_share_the_steps(flow: str) -> None:
    data = pytest.importorskip("torch.utils.data", reason="PyTorch is not installed")
    samples = StreamSamples(flow, ["T"], consumer="train", distribution="on_demand", timeout=seconds(60))
    loaded = {int(sample["step"]): sample["T"] for sample in data.DataLoader(samples, batch_size=None, num_workers=2)}
    assert sorted(loaded) == [0, 1, 2, 3, 4, 5]
    np.testing.assert_array_equal(loaded[4].numpy(), temperature(4))
