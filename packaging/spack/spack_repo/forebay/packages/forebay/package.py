# SPDX-License-Identifier: Apache-2.0
"""Spack's recipe of Forebay's native parts: the staging server, the C++ client and the plugin of a site's ADIOS2."""

from spack.package import *
from spack_repo.builtin.build_systems.cmake import CMakePackage


class Forebay(CMakePackage):
    """Staging for data in flight between programs: burst buffers, streams of steps, and staging to and from a file
    system. This package has the staging server, the C++ client library and the ADIOS2 plugin. The command line and the
    manager are Python; install them with pip beside it.
    """

    # There is no release to download yet: give the sources with `spack develop`, or set `git` to your clone.
    license("Apache-2.0")

    version("develop")

    variant("adios2", default=True, description="Build the ADIOS2 plugin and the library of `forebay run`")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("ninja", type="build")
    depends_on("pkgconfig", type=("build", "run"))

    # Public headers include tl/expected.hpp, and programs link ISA-L and libsodium.
    depends_on("tl-expected@1.0:", type=("build", "link"))
    depends_on("isa-l@2.30:", type=("build", "link"))
    depends_on("libsodium@1.0.18:", type=("build", "link"))
    # Header-only here, so nothing of them is needed later.
    depends_on("fmt@9:", type="build")
    depends_on("spdlog@1.10:", type="build")
    depends_on("cli11@2.1:", type="build")
    depends_on("tomlplusplus@3.3:", type="build")
    # The runtime's version must be flatc's, and generated code asks for that very one.
    depends_on("flatbuffers@2.0.8:", type="build")
    # The plugin is bound to one minor version by ADIOS2's C++ ABI.
    depends_on("adios2@2.12 +shared", when="+adios2")

    conflicts("%gcc@:10", msg="Forebay is C++20; GCC 11 is the oldest that is supported")
    conflicts("%clang@:13", msg="Forebay is C++20; Clang 14 is the oldest that is supported")
    conflicts("platform=darwin", msg="Forebay uses Linux's pidfd, leases and descriptors over sockets")
    conflicts("platform=windows", msg="Forebay uses Linux's pidfd, leases and descriptors over sockets")

    generator("ninja")

    def cmake_args(self):
        return [
            self.define("FOREBAY_BUILD_PYTHON", False),
            self.define("FOREBAY_BUILD_TESTS", False),
            self.define("FOREBAY_BUILD_BENCHMARKS", False),
            self.define("FOREBAY_BUILD_EXAMPLES", False),
            self.define_from_variant("FOREBAY_BUILD_ADIOS2", "adios2"),
        ]

    def setup_run_environment(self, env):
        env.set("FOREBAY_SERVER_BINARY", self.prefix.bin.forebayd)
        if self.spec.satisfies("+adios2"):
            env.set("FOREBAY_ADIOS2_LIBRARY", join_path(self.prefix.lib, "libforebay_adios2.so"))
            env.prepend_path("ADIOS2_PLUGIN_PATH", self.prefix.lib)
