# hvd_library(<component>) applies the common settings to the library hvd_<component>, which the calling
# CMakeLists.txt has defined. Its public headers are in the folder include beside that file, and its
# private headers are in the folder src. Headers in a folder include/**/internal are for the other
# components and are not installed.
function(hvd_library component)
  set(target hvd_${component})
  add_library(hvd::${component} ALIAS ${target})
  target_include_directories(
    ${target}
    PUBLIC $<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}/include>
           $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>
    PRIVATE src)
  target_compile_features(${target} PUBLIC cxx_std_20)
  set_target_properties(
    ${target}
    PROPERTIES EXPORT_NAME ${component}
               DEFINE_SYMBOL "" # keeps the precompiled header usable in shared builds
               VERSION ${PROJECT_VERSION}
               SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
  target_link_options(${target} PRIVATE
                      "LINKER:--version-script=${PROJECT_SOURCE_DIR}/cmake/hvd_exports.map")
  set_property(TARGET ${target} APPEND PROPERTY LINK_DEPENDS "${PROJECT_SOURCE_DIR}/cmake/hvd_exports.map")
  hvd_set_warnings(${target})
  hvd_check_headers(${target})
  if(HVD_INSTALL)
    install(TARGETS ${target} EXPORT hvd_${component}_targets COMPONENT ${component})
    install(
      EXPORT hvd_${component}_targets
      NAMESPACE hvd::
      DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/hvd
      COMPONENT ${component})
    install(
      DIRECTORY include/
      DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
      COMPONENT ${component}
      FILES_MATCHING
      PATTERN "*.hpp"
      PATTERN internal EXCLUDE)
  endif()
endfunction()

# hvd_check_headers(<target>) compiles each public header beside the calling CMakeLists.txt in a
# translation unit of its own, so that none relies on an earlier include. With LibTorch every
# translation unit takes g++ at least 7 s, so there are only two: one includes all headers in order,
# the other in reverse order.
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

# hvd_unity(<target> [ALONE file...]) compiles up to ten files of the target together if HVD_UNITY
# is on. The headers and templates that they share are then parsed and instantiated once; with
# LibTorch this takes g++ 5 to 10 s per file, precompiled or not. ALONE lists files whose private
# names another file of the target uses too.
function(hvd_unity target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "ALONE")
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${HVD_UNITY} UNITY_BUILD_BATCH_SIZE 10)
  set_source_files_properties(${arg_ALONE} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  if(HVD_UNITY AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # g++ treats an included source file as a header and warns about members of private types in its
    # classes.
    target_compile_options(${target} PRIVATE -Wno-subobject-linkage)
  endif()
endfunction()

# hvd_expect_alone(<target> <file>...) stops where files that a test replaces are compiled together with others of the
# target.
function(hvd_expect_alone target)
  foreach(file IN LISTS ARGN)
    get_source_file_property(alone "${file}" TARGET_DIRECTORY ${target} SKIP_UNITY_BUILD_INCLUSION)
    if(NOT alone)
      message(FATAL_ERROR "a test replaces ${file}: list it after ALONE for ${target}")
    endif()
  endforeach()
endfunction()

# hvd_use_torch_pch(<target>...) uses the precompiled LibTorch header, which is built once per build
# tree.
function(hvd_use_torch_pch)
  foreach(target IN LISTS ARGN)
    target_precompile_headers(${target} REUSE_FROM hvd_torch_pch)
  endforeach()
endfunction()
