# SPDX-License-Identifier: Apache-2.0
# Where `cmake --install` puts things. With the Python module a prefix takes the import package, as a wheel has it:
# PREFIX/forebay/bin, lib, include. Without it (-DFOREBAY_BUILD_PYTHON=OFF) it is an ordinary prefix: PREFIX/bin, lib, include.
include(GNUInstallDirs)
if(FOREBAY_BUILD_PYTHON)
  set(FOREBAY_INSTALL_BINDIR forebay/bin)
  set(FOREBAY_INSTALL_LIBDIR forebay/lib)
  set(FOREBAY_INSTALL_INCLUDEDIR forebay/include)
  # The package brings what it needs from the distribution (ISA-L, the header of tl::expected).
  set(FOREBAY_BUNDLE_LIBRARIES ON)
else()
  set(FOREBAY_INSTALL_BINDIR "${CMAKE_INSTALL_BINDIR}")
  set(FOREBAY_INSTALL_LIBDIR "${CMAKE_INSTALL_LIBDIR}")
  set(FOREBAY_INSTALL_INCLUDEDIR "${CMAKE_INSTALL_INCLUDEDIR}")
  set(FOREBAY_BUNDLE_LIBRARIES OFF)
endif()

# install_rpath(TARGET FOLDER...): where an installed program or library looks for the libraries that it needs: in these
# folders beside it, and where ISA-L was found if that is not bundled (a site's own prefix).
function(install_rpath target)
  set(folders ${ARGN})
  if(NOT FOREBAY_BUNDLE_LIBRARIES)
    list(APPEND folders ${ISAL_LIBRARY_DIRS})
  endif()
  set_target_properties(${target} PROPERTIES INSTALL_RPATH "${folders}")
endfunction()

# The wheel keeps the libraries that it needs from the distribution in forebay/lib, next to the plugin.
function(install_bundled_libraries)
  if(NOT FOREBAY_BUNDLE_LIBRARIES)
    return()
  endif()
  find_library(ISAL_LIBRARY_FILE NAMES isal HINTS ${ISAL_LIBRARY_DIRS} REQUIRED)
  file(REAL_PATH "${ISAL_LIBRARY_FILE}" isal_file)
  install(FILES "${isal_file}" DESTINATION "${FOREBAY_INSTALL_LIBDIR}" RENAME libisal.so.2
    PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
endfunction()
