# SPDX-License-Identifier: Apache-2.0
# How a layer becomes a library: the *.cpp of its folder and the folders in it make a static library, its *.fbs become
# headers.

# add_layer(NAME [PUBLIC libraries...] [PRIVATE libraries...] [EXCLUDE file...])
# A layer that has no source file is a header library, so that other layers can always link it.
function(add_layer name)
  cmake_parse_arguments(layer "" "" "PUBLIC;PRIVATE;EXCLUDE" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS *.cpp)
  foreach(excluded IN LISTS layer_EXCLUDE)
    list(REMOVE_ITEM sources "${CMAKE_CURRENT_SOURCE_DIR}/${excluded}")
  endforeach()
  file(GLOB_RECURSE headers CONFIGURE_DEPENDS *.h)
  if(sources)
    add_library(${name} STATIC ${sources} ${headers})
    target_include_directories(${name} PUBLIC "${PROJECT_SOURCE_DIR}/core")
    target_link_libraries(${name} PUBLIC ${layer_PUBLIC} PRIVATE ${layer_PRIVATE})
  else()
    add_library(${name} INTERFACE)
    target_include_directories(${name} INTERFACE "${PROJECT_SOURCE_DIR}/core")
    target_link_libraries(${name} INTERFACE ${layer_PUBLIC} ${layer_PRIVATE})
  endif()
endfunction()

# add_schemas(NAME FOLDER): compiles this folder's *.fbs to <build>/generated/forebay/FOLDER/*_generated.h for layer NAME
# and whoever links it.
function(add_schemas name folder)
  file(GLOB schemas CONFIGURE_DEPENDS *.fbs)
  if(NOT schemas)
    return()
  endif()
  set(output_dir "${PROJECT_BINARY_DIR}/generated/forebay/${folder}")
  set(outputs)
  foreach(schema IN LISTS schemas)
    get_filename_component(stem "${schema}" NAME_WE)
    set(output "${output_dir}/${stem}_generated.h")
    # Depends on all schemas of the folder, because they may include one another.
    add_custom_command(OUTPUT "${output}"
      COMMAND flatbuffers::flatc --cpp --cpp-std c++17 --scoped-enums --gen-object-api
        --cpp-include base/verifier.h -o "${output_dir}" "${schema}"
      COMMAND "${CMAKE_COMMAND}" -D "FILE=${output}" -P "${PROJECT_SOURCE_DIR}/cmake/own_verifier.cmake"
      DEPENDS ${schemas} "${PROJECT_SOURCE_DIR}/cmake/own_verifier.cmake"
      COMMENT "Generating ${folder}/${stem}_generated.h" VERBATIM)
    list(APPEND outputs "${output}")
  endforeach()
  add_custom_target(${name}_schemas DEPENDS ${outputs})
  add_dependencies(${name} ${name}_schemas)
  get_target_property(type ${name} TYPE)
  set(scope PUBLIC)
  if(type STREQUAL "INTERFACE_LIBRARY")
    set(scope INTERFACE)
  endif()
  target_include_directories(${name} SYSTEM ${scope} "${PROJECT_BINARY_DIR}/generated")
endfunction()

# Every example folder that has a CMakeLists.txt is built into <build>/examples/FOLDER.
function(add_example_directories)
  file(GLOB lists CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/examples/*/CMakeLists.txt")
  foreach(list IN LISTS lists)
    get_filename_component(folder "${list}" DIRECTORY)
    add_subdirectory("${folder}")
  endforeach()
endfunction()
