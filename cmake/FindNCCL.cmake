# Finds NCCL and the CUDA runtime, without enabling the CUDA language and without nvcc, so that a
# C++-only project can use it.
#
#   NCCL_FOUND     true when everything needed to run was found
#   NCCL_MISSING   the parts that were not found
#   NCCL::headers  nccl.h and cuda_runtime_api.h, even when the libraries are missing
#   NCCL::nccl     both libraries and the headers
#
# NCCL_ROOT, CUDAToolkit_ROOT, CUDA_HOME and CUDA_PATH are searched first, then /usr/local/cuda and
# the usual places.
set(_nccl_hints ${NCCL_ROOT} $ENV{NCCL_ROOT} $ENV{NCCL_HOME})
set(_cuda_hints ${CUDAToolkit_ROOT} $ENV{CUDAToolkit_ROOT} $ENV{CUDA_HOME} $ENV{CUDA_PATH})
set(_cuda_suffixes "" targets/${CMAKE_SYSTEM_PROCESSOR}-linux)
list(TRANSFORM _cuda_suffixes APPEND "/include" OUTPUT_VARIABLE _cuda_include_suffixes)
set(_cuda_lib_suffixes lib64 lib targets/${CMAKE_SYSTEM_PROCESSOR}-linux/lib)

find_path(NCCL_CUDA_INCLUDE_DIR cuda_runtime_api.h HINTS ${_cuda_hints} PATHS /usr/local/cuda
          PATH_SUFFIXES ${_cuda_include_suffixes})
find_library(NCCL_CUDART_LIBRARY cudart HINTS ${_cuda_hints} PATHS /usr/local/cuda
             PATH_SUFFIXES ${_cuda_lib_suffixes})
find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${_nccl_hints} ${_cuda_hints} PATHS /usr/local/cuda
          PATH_SUFFIXES ${_cuda_include_suffixes})
find_library(NCCL_LIBRARY nccl HINTS ${_nccl_hints} ${_cuda_hints} PATHS /usr/local/cuda
             PATH_SUFFIXES ${_cuda_lib_suffixes})
mark_as_advanced(NCCL_CUDA_INCLUDE_DIR NCCL_CUDART_LIBRARY NCCL_INCLUDE_DIR NCCL_LIBRARY)
foreach(_nccl_var IN ITEMS _nccl_hints _cuda_hints _cuda_suffixes _cuda_include_suffixes
                           _cuda_lib_suffixes)
  unset(${_nccl_var})
endforeach()

set(NCCL_MISSING "")
foreach(_nccl_pair IN ITEMS "NCCL_INCLUDE_DIR:nccl.h" "NCCL_LIBRARY:libnccl"
                            "NCCL_CUDA_INCLUDE_DIR:cuda_runtime_api.h"
                            "NCCL_CUDART_LIBRARY:libcudart")
  string(REPLACE ":" ";" _nccl_pair "${_nccl_pair}")
  list(GET _nccl_pair 0 _nccl_var)
  list(GET _nccl_pair 1 _nccl_what)
  if(NOT ${_nccl_var})
    list(APPEND NCCL_MISSING "${_nccl_what}")
  endif()
endforeach()
list(JOIN NCCL_MISSING ", " NCCL_MISSING)
unset(_nccl_pair)
unset(_nccl_var)
unset(_nccl_what)

if(NCCL_INCLUDE_DIR AND EXISTS "${NCCL_INCLUDE_DIR}/nccl.h")
  file(STRINGS "${NCCL_INCLUDE_DIR}/nccl.h" _nccl_lines
       REGEX "#define NCCL_(MAJOR|MINOR|PATCH) ")
  string(REGEX REPLACE "[^0-9;]" "" _nccl_lines "${_nccl_lines}")
  string(REGEX REPLACE ";" "." NCCL_VERSION "${_nccl_lines}")
  unset(_nccl_lines)
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(
  NCCL
  REQUIRED_VARS NCCL_LIBRARY NCCL_INCLUDE_DIR NCCL_CUDART_LIBRARY NCCL_CUDA_INCLUDE_DIR
  VERSION_VAR NCCL_VERSION)

if(NCCL_INCLUDE_DIR AND NCCL_CUDA_INCLUDE_DIR AND NOT TARGET NCCL::headers)
  add_library(NCCL::headers INTERFACE IMPORTED)
  set_target_properties(
    NCCL::headers PROPERTIES INTERFACE_INCLUDE_DIRECTORIES
                             "${NCCL_INCLUDE_DIR};${NCCL_CUDA_INCLUDE_DIR}")
endif()
if(NCCL_FOUND AND NOT TARGET NCCL::nccl)
  add_library(NCCL::cudart UNKNOWN IMPORTED)
  set_target_properties(NCCL::cudart PROPERTIES IMPORTED_LOCATION "${NCCL_CUDART_LIBRARY}")
  add_library(NCCL::nccl UNKNOWN IMPORTED)
  set_target_properties(
    NCCL::nccl PROPERTIES IMPORTED_LOCATION "${NCCL_LIBRARY}"
                          INTERFACE_LINK_LIBRARIES "NCCL::headers;NCCL::cudart")
endif()
