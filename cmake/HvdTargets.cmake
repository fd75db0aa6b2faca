# hvd_library(<room>): the common settings of a room's library hvd_<room>, which must exist.
# Sources stay in explicit lists in the room's CMakeLists.txt; public headers live in <room>/include
# and private ones in <room>/src.
function(hvd_library room)
  set(target hvd_${room})
  add_library(hvd::${room} ALIAS ${target})
  target_include_directories(
    ${target}
    PUBLIC $<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}/include>
           $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>
    PRIVATE src)
  target_compile_features(${target} PUBLIC cxx_std_20)
  set_target_properties(
    ${target}
    PROPERTIES EXPORT_NAME ${room}
               DEFINE_SYMBOL "" # keeps the precompiled header usable in shared builds
               VERSION ${PROJECT_VERSION}
               SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
  hvd_set_warnings(${target})
  hvd_check_headers(${target})
  if(HVD_INSTALL)
    install(TARGETS ${target} EXPORT hvd_${room}_targets COMPONENT ${room})
    install(
      EXPORT hvd_${room}_targets
      NAMESPACE hvd::
      DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/hvd
      COMPONENT ${room})
    install(
      DIRECTORY include/
      DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
      COMPONENT ${room}
      FILES_MATCHING
      PATTERN "*.hpp")
  endif()
endfunction()

# hvd_check_headers(<target>): compiles each public header of the current room in a translation unit
# of its own, so that none relies on what its user happened to include before. With LibTorch, where a
# translation unit takes g++ 7 s whatever is in it, there are two: all headers from the first to the
# last, and from the last to the first, so that no header comes after all others in both.
function(hvd_check_headers target)
  if(NOT HVD_CHECK_HEADERS)
    return()
  endif()
  file(GLOB_RECURSE headers CONFIGURE_DEPENDS RELATIVE "${CMAKE_CURRENT_SOURCE_DIR}/include"
       "${CMAKE_CURRENT_SOURCE_DIR}/include/*.hpp")
  if(NOT headers)
    return()
  endif()
  set(sources "")
  if(target MATCHES "^hvd_(torch|estimator)$")
    foreach(order IN ITEMS ascending descending)
      list(TRANSFORM headers REPLACE "(.+)" "#include <\\1>" OUTPUT_VARIABLE lines)
      list(JOIN lines "\n" content)
      list(APPEND sources "${CMAKE_CURRENT_BINARY_DIR}/headers/${order}.cpp")
      file(CONFIGURE OUTPUT "${CMAKE_CURRENT_BINARY_DIR}/headers/${order}.cpp" CONTENT "${content}\n")
      list(REVERSE headers)
    endforeach()
  else()
    foreach(header IN LISTS headers)
      string(REGEX REPLACE "[^A-Za-z0-9]" "_" name "${header}")
      set(source "${CMAKE_CURRENT_BINARY_DIR}/headers/${name}.cpp")
      file(CONFIGURE OUTPUT "${source}" CONTENT "#include <${header}>\n#include <${header}>\n")
      list(APPEND sources "${source}")
    endforeach()
  endif()
  add_library(${target}_headers OBJECT ${sources})
  target_link_libraries(${target}_headers PRIVATE ${target})
  target_compile_options(${target}_headers PRIVATE -O0)
  hvd_set_warnings(${target}_headers)
endfunction()

# hvd_unity(<target> [ALONE file...]): with HVD_UNITY its files are compiled up to ten at a time, which parses the
# headers and instantiates the templates that they share once instead of ten times: with LibTorch's that is 5 to 10 s
# each for g++, precompiled or not. ALONE are files whose private names are also those of a file beside them.
function(hvd_unity target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "ALONE")
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${HVD_UNITY} UNITY_BUILD_BATCH_SIZE 10)
  set_source_files_properties(${arg_ALONE} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  if(HVD_UNITY AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # g++ takes a class of a file that is included for one of a header, which must not hold private types.
    target_compile_options(${target} PRIVATE -Wno-subobject-linkage)
  endif()
endfunction()

# hvd_use_torch_pch(<target>...): uses the precompiled LibTorch header, built once per build tree.
function(hvd_use_torch_pch)
  foreach(target IN LISTS ARGN)
    target_precompile_headers(${target} REUSE_FROM hvd_torch_pch)
  endforeach()
endfunction()
