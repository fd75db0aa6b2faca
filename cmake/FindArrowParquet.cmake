# Finds Apache Arrow and Parquet for C++.
#
#   ArrowParquet_FOUND, ArrowParquet_VERSION, ArrowParquet_PREFIX
#   ArrowParquet::parquet     both libraries, and Arrow's own S3 library where it is a separate one
#   ArrowParquet_FILESYSTEMS  those of S3, AZURE, GCS and HDFS that this Arrow was built with
#
# These places are searched, and the first hit wins:
#   1. the `pyarrow` wheel, which is a C++ SDK without a CMake package: Arrow_ROOT (variable or
#      environment), each entry of CMAKE_PREFIX_PATH (variable and environment)
#   2. the wheel in ArrowParquet_HINTS (the installed hvd package names what it was built against)
#   3. Arrow's own CMake packages Arrow and Parquet, as find_package() finds them
#   4. the wheel in the cache of scripts/install_deps:
#      ${HVD_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/hvd}
# An entry for the wheel is its `pyarrow` folder or the folder that holds it.

# _arrow_find_wheel(<folder>...) sets ArrowParquet_PREFIX and, for each library,
# _arrow_library_<name>. The file names of a wheel's libraries end in the version, so find_library()
# does not find them.
macro(_arrow_find_wheel)
  foreach(_arrow_folder IN ITEMS ${ARGN})
    foreach(_arrow_suffix IN ITEMS "" /pyarrow)
      set(_arrow_candidate "${_arrow_folder}${_arrow_suffix}")
      if(NOT ArrowParquet_PREFIX AND EXISTS "${_arrow_candidate}/include/arrow/api.h")
        foreach(_arrow_name IN ITEMS arrow parquet arrow_s3)
          file(GLOB _arrow_found "${_arrow_candidate}/lib${_arrow_name}.so.[0-9]*")
          string(REGEX REPLACE ";.*" "" _arrow_library_${_arrow_name} "${_arrow_found}") # the first, if any
        endforeach()
        if(_arrow_library_arrow AND _arrow_library_parquet)
          get_filename_component(ArrowParquet_PREFIX "${_arrow_candidate}" REALPATH)
        endif()
      endif()
    endforeach()
  endforeach()
endmacro()

# _arrow_macros(<config.h>) reads the version and the file systems of this Arrow from its header.
macro(_arrow_macros header)
  file(STRINGS "${header}" _arrow_lines REGEX "^#define ARROW_")
  string(REGEX MATCH "ARROW_VERSION_STRING \"([0-9.]+)" _arrow_match "${_arrow_lines}")
  set(ArrowParquet_VERSION "${CMAKE_MATCH_1}")
  foreach(_arrow_name IN ITEMS S3 AZURE GCS HDFS)
    if("#define ARROW_${_arrow_name}" IN_LIST _arrow_lines)
      list(APPEND ArrowParquet_FILESYSTEMS ${_arrow_name})
    endif()
  endforeach()
endmacro()

set(ArrowParquet_PREFIX "")
set(ArrowParquet_FILESYSTEMS "")
set(_arrow_package "")
set(_arrow_environment "$ENV{CMAKE_PREFIX_PATH}")
string(REPLACE ":" ";" _arrow_environment "${_arrow_environment}")
_arrow_find_wheel(${Arrow_ROOT} $ENV{Arrow_ROOT} ${CMAKE_PREFIX_PATH} ${_arrow_environment}
                  ${ArrowParquet_HINTS})
if(NOT ArrowParquet_PREFIX)
  find_package(Arrow CONFIG QUIET)
  if(Arrow_FOUND)
    find_package(Parquet CONFIG QUIET)
  endif()
  foreach(_arrow_kind IN ITEMS shared static)
    if(NOT _arrow_package AND TARGET Arrow::arrow_${_arrow_kind}
       AND TARGET Parquet::parquet_${_arrow_kind})
      # The CMake package may be in lib/cmake or in lib/<architecture>/cmake.
      get_target_property(_arrow_found Arrow::arrow_${_arrow_kind} INTERFACE_INCLUDE_DIRECTORIES)
      list(APPEND _arrow_found "${Arrow_DIR}/../../../include")
      foreach(_arrow_candidate IN LISTS _arrow_found)
        if(NOT ArrowParquet_PREFIX AND EXISTS "${_arrow_candidate}/arrow/api.h")
          set(_arrow_package ${_arrow_kind})
          get_filename_component(ArrowParquet_PREFIX "${_arrow_candidate}/.." REALPATH)
        endif()
      endforeach()
    endif()
  endforeach()
endif()
if(NOT ArrowParquet_PREFIX)
  set(_arrow_cache "$ENV{HVD_CACHE}")
  if(NOT _arrow_cache)
    set(_arrow_cache "$ENV{XDG_CACHE_HOME}")
    if(NOT _arrow_cache)
      set(_arrow_cache "$ENV{HOME}/.cache")
    endif()
    string(APPEND _arrow_cache "/hvd")
  endif()
  _arrow_find_wheel("${_arrow_cache}/arrow-${HVD_ARROW_VERSION}")
endif()

set(ArrowParquet_VERSION "")
if(ArrowParquet_PREFIX)
  if(EXISTS "${ArrowParquet_PREFIX}/include/arrow/util/config.h")
    _arrow_macros("${ArrowParquet_PREFIX}/include/arrow/util/config.h")
  elseif(_arrow_package)
    set(ArrowParquet_VERSION "${Arrow_VERSION}")
  endif()
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(
  ArrowParquet
  REQUIRED_VARS ArrowParquet_PREFIX
  VERSION_VAR ArrowParquet_VERSION
  REASON_FAILURE_MESSAGE
    "set CMAKE_PREFIX_PATH or Arrow_ROOT to one, or run scripts/install_deps --estimator of hvd")

if(ArrowParquet_FOUND AND NOT TARGET ArrowParquet::parquet)
  add_library(ArrowParquet::parquet INTERFACE IMPORTED)
  if(_arrow_package)
    set_target_properties(
      ArrowParquet::parquet PROPERTIES INTERFACE_LINK_LIBRARIES
                                       "Parquet::parquet_${_arrow_package};Arrow::arrow_${_arrow_package}")
  else()
    set(_arrow_libraries "")
    foreach(_arrow_name IN ITEMS parquet arrow_s3 arrow)
      if(_arrow_library_${_arrow_name})
        add_library(ArrowParquet::${_arrow_name}_library SHARED IMPORTED)
        set_target_properties(ArrowParquet::${_arrow_name}_library
                              PROPERTIES IMPORTED_LOCATION "${_arrow_library_${_arrow_name}}")
        list(APPEND _arrow_libraries ArrowParquet::${_arrow_name}_library)
      endif()
    endforeach()
    set_target_properties(
      ArrowParquet::parquet
      PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${ArrowParquet_PREFIX}/include"
                 INTERFACE_LINK_LIBRARIES "${_arrow_libraries}")
    unset(_arrow_libraries)
  endif()
endif()
foreach(_arrow_name IN ITEMS folder suffix candidate found lines match package environment kind cache
                             library_arrow library_parquet library_arrow_s3)
  unset(_arrow_${_arrow_name})
endforeach()
unset(_arrow_name)
