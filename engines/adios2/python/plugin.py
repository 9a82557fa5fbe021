# SPDX-License-Identifier: Apache-2.0
"""Finds the plugin library, and names it to ADIOS2 in a way that ADIOS2 accepts."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Any, Protocol

import forebay

__all__ = [
    "IO",
    "LIBRARY_NAME",
    "configure",
    "environment",
    "foreign_parameter_table",
    "hook_library",
    "open_stream",
    "parameter_table",
    "plugin_library",
]

#: What ``PluginLibrary`` says where ``ADIOS2_PLUGIN_PATH`` names the library's folder.
LIBRARY_NAME = "forebay_adios2"

#: ADIOS2 keeps loaded plugins under this name, one for all streams.
_PLUGIN_NAME = "forebay"
_SEARCH_PATH = "ADIOS2_PLUGIN_PATH"
_MODES = ("r", "rra", "w", "a")


class IO(Protocol):
    """What is needed of an ``adios2.IO``."""

    def set_engine(self, name: str) -> object:
        """Chooses the engine."""

    def set_parameter(self, key: str, value: str) -> object:
        """Sets one engine parameter."""


def plugin_library() -> Path:
    """The plugin, as an absolute path.

    It comes with the package; ``$FOREBAY_ADIOS2_LIBRARY`` names another build of it (a site's own ADIOS2).

    Raises
    ------
    NotFoundError
        There is no such file.
    """
    chosen = os.environ.get("FOREBAY_ADIOS2_LIBRARY")
    packaged = Path(forebay.__file__).parent / "lib" / f"lib{LIBRARY_NAME}.so"
    library = Path(chosen) if chosen else packaged
    if not library.is_file():
        origin = "FOREBAY_ADIOS2_LIBRARY" if chosen else "the installed package"
        raise forebay.NotFoundError(
            f"there is no ADIOS2 plugin at {library} ({origin}); build it with ./run build, or install the wheel"
        )
    return library.absolute()


def hook_library() -> Path:
    """The library that ``forebay run`` preloads, as an absolute path: beside the plugin, else in the package.

    Raises
    ------
    NotFoundError
        It is in neither place.
    """
    name = f"lib{LIBRARY_NAME}_hook.so"
    folders = [plugin_library().parent, Path(forebay.__file__).parent / "lib"]
    for folder in folders:
        if (folder / name).is_file():
            return (folder / name).absolute()
    raise forebay.NotFoundError(
        f"there is no {name} in {folders[0]} or {folders[1]}; install the wheel, or ./run build"
    )


def environment() -> dict[str, str]:
    """The variables with which a program finds the plugin as ``PluginLibrary=forebay_adios2``.

    ADIOS2 looks for plugins in the folders of ``ADIOS2_PLUGIN_PATH``; those that it names already stay.
    """
    return {_SEARCH_PATH: _with_folder(os.environ.get(_SEARCH_PATH, ""), str(plugin_library().parent))}


def configure(io: IO, stream: str, **parameters: str | float | bool) -> None:
    """Makes ``io`` open ``stream`` (``RESERVATION/STREAM``), whatever name it is opened under.

    Parameters
    ----------
    io : adios2.IO
        It may be configured anew between two opens; each engine keeps the stream that it opened.
    stream : str
        The stream's address, or a step's for reading; or the path of a :class:`forebay.Ticket` for one of them.
    parameters : str, float or bool
        Engine parameters by their names in docs/adios2-parameters.md (``Consumer="render"``), or the same in snake case
        (``consumer="render"``).

    Raises
    ------
    InvalidArgumentError
        The address is malformed. Wrong parameters are reported when the engine is opened.
    NotFoundError
        The plugin is not there.
    """
    forebay.Address.parse(stream)  # a mistaken one is told here; the engine reads a ticket itself
    io.set_engine("Plugin")
    io.set_parameter("PluginName", _PLUGIN_NAME)
    io.set_parameter("PluginLibrary", _library_parameter())
    io.set_parameter("Stream", stream)
    for name, value in parameters.items():
        io.set_parameter(_parameter_name(name), _parameter_value(value))


def open_stream(stream: str, mode: str = "r", **parameters: str | float | bool) -> Any:
    """Opens a stream (``RESERVATION/STREAM``) as an ``adios2.Stream``, with an IO of its own.

    Parameters
    ----------
    stream : str
        As for `configure`.
    mode : {"r", "rra", "w", "a"}
        As ADIOS2 has them: read step by step, read all steps at once, write anew, append.
    parameters : str, float or bool
        As for `configure`.

    Raises
    ------
    InvalidArgumentError
        The address or the mode is none.
    ValueError, RuntimeError
        What ADIOS2 makes of the engine's errors: a wrong parameter, a reservation that does not exist, a deadline.

    Examples
    --------
    >>> with forebay.adios2.open("run1/flow", "r", consumer="render") as stream:
    ...     for step in stream:
    ...         temperature = step.read("T")
    """
    import adios2

    if mode not in _MODES:
        raise forebay.InvalidArgumentError(f"the mode is one of {', '.join(_MODES)}, not {mode!r}")
    io = adios2.Adios().declare_io("forebay")
    if mode == "rra":
        parameters.setdefault("RandomAccess", True)
    configure(io, stream, **parameters)
    return adios2.Stream(io, stream, mode)


def parameter_table() -> str:
    """The engine's parameters as a Markdown table, from the plugin itself."""
    return _text_of("forebay_adios2_parameter_table")


def foreign_parameter_table() -> str:
    """Other engines' parameters as a Markdown table: what becomes of each."""
    return _text_of("forebay_adios2_foreign_parameter_table")


def _text_of(function_name: str) -> str:
    import adios2  # noqa: F401 - the plugin's own libraries are those that adios2 has loaded

    function = getattr(ctypes.CDLL(str(plugin_library())), function_name)
    function.restype = ctypes.c_char_p
    table = function()
    assert isinstance(table, bytes)
    return table.decode()


def _library_parameter() -> str:
    """How to name the library: ADIOS2 puts each folder of ADIOS2_PLUGIN_PATH, if set, even before an absolute path."""
    folders = os.environ.get(_SEARCH_PATH, "")
    if not folders:
        return str(plugin_library())
    os.environ[_SEARCH_PATH] = _with_folder(folders, str(plugin_library().parent))
    return plugin_library().name


def _with_folder(folders: str, folder: str) -> str:
    known = folders.split(os.pathsep) if folders else []
    return folders if folder in known else os.pathsep.join([folder, *known])


def _parameter_name(name: str) -> str:
    """``open_timeout_secs`` → ``OpenTimeoutSecs``; what begins with a capital stays."""
    return name if name[:1].isupper() else "".join(part.capitalize() for part in name.split("_"))


def _parameter_value(value: str | float | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
