# SPDX-License-Identifier: Apache-2.0
# What C++ programs of others need: the public headers, the client as one static library, a CMake package and a pkg-config
# file. All of them find one another by relative paths, so that a wheel may be installed anywhere.
include(CMakePackageConfigHelpers)

# The client with the layers below it, so that users link one file and see no target of ours but forebay::client.
add_library(forebay_client_package STATIC)
set_target_properties(forebay_client_package PROPERTIES
  OUTPUT_NAME forebay_client EXPORT_NAME client LINKER_LANGUAGE CXX ARCHIVE_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib")
foreach(layer IN ITEMS forebay_client forebay_protocol forebay_fabric forebay_base)
  get_target_property(type ${layer} TYPE)
  # A layer without a source file is a header library.
  if(type STREQUAL "STATIC_LIBRARY")
    target_sources(forebay_client_package PRIVATE $<TARGET_OBJECTS:${layer}>)
  endif()
endforeach()
target_compile_features(forebay_client_package INTERFACE cxx_std_20)
target_include_directories(forebay_client_package INTERFACE "$<INSTALL_INTERFACE:${FOREBAY_INSTALL_INCLUDEDIR}>")
# forebay::isal, forebay::sodium and forebay::expected are made by forebay-config.cmake: the bundled ones, or the system's.
target_link_libraries(forebay_client_package INTERFACE
  "$<INSTALL_INTERFACE:forebay::isal>" "$<INSTALL_INTERFACE:forebay::sodium>"
  "$<INSTALL_INTERFACE:forebay::expected>" Threads::Threads ${CMAKE_DL_LIBS})

set(package_dir "${FOREBAY_INSTALL_LIBDIR}/cmake/forebay")
install(TARGETS forebay_client_package EXPORT forebay ARCHIVE DESTINATION "${FOREBAY_INSTALL_LIBDIR}")
install(EXPORT forebay NAMESPACE forebay:: FILE forebay-targets.cmake DESTINATION "${package_dir}")
install(DIRECTORY "${PROJECT_SOURCE_DIR}/core/include/forebay" DESTINATION "${FOREBAY_INSTALL_INCLUDEDIR}"
  FILES_MATCHING PATTERN "*.h")

configure_package_config_file(cmake/forebay-config.cmake.in "${PROJECT_BINARY_DIR}/forebay-config.cmake"
  INSTALL_DESTINATION "${package_dir}" PATH_VARS FOREBAY_INSTALL_LIBDIR NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file("${PROJECT_BINARY_DIR}/forebay-config-version.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/forebay-config.cmake" "${PROJECT_BINARY_DIR}/forebay-config-version.cmake"
  DESTINATION "${package_dir}")

# The header of tl::expected, which the public headers include.
get_target_property(expected_include_dirs tl::expected INTERFACE_INCLUDE_DIRECTORIES)
find_path(EXPECTED_INCLUDE_DIR tl/expected.hpp HINTS ${expected_include_dirs} REQUIRED)
if(FOREBAY_BUNDLE_LIBRARIES)
  install(FILES "${EXPECTED_INCLUDE_DIR}/tl/expected.hpp" DESTINATION "${FOREBAY_INSTALL_INCLUDEDIR}/tl")
  # The client is a static library, so what it takes from libsodium is linked into the program.
  install(FILES "${SODIUM_LIBRARY}" DESTINATION "${FOREBAY_INSTALL_LIBDIR}")
endif()

# pkg-config: the bundled library by its path, as it has no name without a version; the system's by its own file.
set(pkgconfig_dir "${FOREBAY_INSTALL_LIBDIR}/pkgconfig")
file(RELATIVE_PATH libdir_from_pkgconfig "/prefix/${pkgconfig_dir}" "/prefix/${FOREBAY_INSTALL_LIBDIR}")
file(RELATIVE_PATH includedir_from_pkgconfig "/prefix/${pkgconfig_dir}" "/prefix/${FOREBAY_INSTALL_INCLUDEDIR}")
set(pkgconfig_requires "")
set(pkgconfig_libs "-L\${libdir} -lforebay_client")
set(pkgconfig_cflags "-I\${includedir}")
if(FOREBAY_BUNDLE_LIBRARIES)
  string(APPEND pkgconfig_libs " \${libdir}/libisal.so.2 \${libdir}/libsodium.a -Wl,-rpath,\${libdir}")
else()
  set(pkgconfig_requires "Requires: libisal, libsodium\n")
  if(NOT EXPECTED_INCLUDE_DIR IN_LIST CMAKE_CXX_IMPLICIT_INCLUDE_DIRECTORIES)
    string(APPEND pkgconfig_cflags " -I${EXPECTED_INCLUDE_DIR}")
  endif()
endif()
string(APPEND pkgconfig_libs " -pthread")
configure_file(cmake/forebay.pc.in "${PROJECT_BINARY_DIR}/forebay.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/forebay.pc" DESTINATION "${pkgconfig_dir}")
