# SPDX-License-Identifier: Apache-2.0
"""Prints how many seconds the inventory of an address takes: timed_inventory.py ADDRESS FOLDER; Snakemake's Python."""

import asyncio
import logging
import sys
import time
from pathlib import Path

import snakemake_storage_plugin_forebay as plugin  # type: ignore[import-untyped]
from snakemake.io import IOCache

provider = plugin.StorageProvider(
    logger=logging.getLogger(), local_prefix=Path(sys.argv[2]), settings=plugin.StorageProviderSettings()
)
address = provider.object(sys.argv[1])
cache = IOCache(max_wait_time=10)
began = time.perf_counter()
asyncio.run(address.inventory(cache))
print(time.perf_counter() - began)
