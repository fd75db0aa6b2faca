# Finds LibTorch for C++ only, without a CUDA toolkit, global compiler flags or Python. (LibTorch's
# own CMake package of a CUDA build demands a toolkit and changes CMAKE_CXX_FLAGS.)
#
#   LibTorch_FOUND, LibTorch_VERSION
#   LibTorch_PREFIX      the folder with include/ and lib/
#   LibTorch::torch      what a CPU program needs: libtorch_cpu, libc10 and the headers, which are
#                        system headers
#   LibTorch::python     what a Python module with tensors needs, in the wheel
#   LibTorch::cuda       CUDA tensors as well, in a CUDA build. The linker must find its libraries
#                        (cuDNN, NCCL, ...); they are not searched for here
#
# These places are searched, and the first hit wins:
#   1. LibTorch_ROOT (variable or environment), Torch_DIR (variable or environment)
#   2. each entry of CMAKE_PREFIX_PATH (variable and environment)
#   3. LibTorch_HINTS (the installed hvd package names what it was built against)
#   4. the cache of scripts/install_deps: ${HVD_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/hvd}
# An entry may be an unpacked libtorch zip, a folder that holds the `torch` wheel, the wheel's
# `torch` folder, or its `torch/share/cmake`.

function(_libtorch_candidates out)
  set(entries "")
  foreach(entry IN ITEMS "${LibTorch_ROOT}" "$ENV{LibTorch_ROOT}")
    if(entry)
      list(APPEND entries "${entry}")
    endif()
  endforeach()
  foreach(dir IN ITEMS "${Torch_DIR}" "$ENV{Torch_DIR}")
    if(dir) # <prefix>/share/cmake/Torch
      list(APPEND entries "${dir}/../../..")
    endif()
  endforeach()
  list(APPEND entries ${CMAKE_PREFIX_PATH})
  set(from_environment "$ENV{CMAKE_PREFIX_PATH}")
  string(REPLACE ":" ";" from_environment "${from_environment}")
  list(APPEND entries ${from_environment} ${LibTorch_HINTS})

  set(cache "$ENV{HVD_CACHE}")
  if(NOT cache)
    set(cache "$ENV{XDG_CACHE_HOME}")
    if(NOT cache)
      set(cache "$ENV{HOME}/.cache")
    endif()
    string(APPEND cache "/hvd")
  endif()
  if(LibTorch_FIND_VERSION_EXACT)
    list(APPEND entries "${cache}/libtorch-${LibTorch_FIND_VERSION}")
  endif()
  if(HVD_LIBTORCH_VERSION)
    list(APPEND entries "${cache}/libtorch-${HVD_LIBTORCH_VERSION}")
  endif()

  set(candidates "")
  foreach(entry IN LISTS entries)
    foreach(suffix IN ITEMS "" /torch /libtorch /../..)
      list(APPEND candidates "${entry}${suffix}")
    endforeach()
  endforeach()
  set(${out} "${candidates}" PARENT_SCOPE)
endfunction()

set(LibTorch_PREFIX "LibTorch_PREFIX-NOTFOUND")
_libtorch_candidates(_libtorch_candidates)
foreach(_libtorch_candidate IN LISTS _libtorch_candidates)
  if(EXISTS "${_libtorch_candidate}/lib/libtorch_cpu${CMAKE_SHARED_LIBRARY_SUFFIX}"
     AND EXISTS "${_libtorch_candidate}/include/torch/csrc/api/include/torch/torch.h")
    get_filename_component(LibTorch_PREFIX "${_libtorch_candidate}" REALPATH)
    break()
  endif()
endforeach()
unset(_libtorch_candidates)
unset(_libtorch_candidate)

set(LibTorch_VERSION "")
set(_libtorch_definitions "")
if(LibTorch_PREFIX)
  set(_libtorch_cmake "${LibTorch_PREFIX}/share/cmake/Torch")
  if(NOT EXISTS "${_libtorch_cmake}")
    set(_libtorch_cmake "${LibTorch_PREFIX}/share/torch") # vcpkg moves it there
  endif()
  if(EXISTS "${_libtorch_cmake}/TorchConfigVersion.cmake")
    file(STRINGS "${_libtorch_cmake}/TorchConfigVersion.cmake" _libtorch_line
         REGEX "set\\(PACKAGE_VERSION " LIMIT_COUNT 1)
    string(REGEX MATCH "[0-9]+\\.[0-9]+\\.[0-9]+" LibTorch_VERSION "${_libtorch_line}")
  endif()
  # Builds before 2.7 may use the old ABI of std::string; their own CMake package says which.
  if(EXISTS "${_libtorch_cmake}/TorchConfig.cmake")
    file(STRINGS "${_libtorch_cmake}/TorchConfig.cmake" _libtorch_line
         REGEX "_GLIBCXX_USE_CXX11_ABI=[01]" LIMIT_COUNT 1)
    string(REGEX MATCH "_GLIBCXX_USE_CXX11_ABI=[01]" _libtorch_definitions "${_libtorch_line}")
  endif()
  unset(_libtorch_cmake)
  unset(_libtorch_line)
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(
  LibTorch
  REQUIRED_VARS LibTorch_PREFIX
  VERSION_VAR LibTorch_VERSION
  REASON_FAILURE_MESSAGE
    "set CMAKE_PREFIX_PATH, Torch_DIR or LibTorch_ROOT to one, or run scripts/install_deps of hvd")

if(LibTorch_FOUND AND NOT TARGET LibTorch::torch)
  foreach(_libtorch_name IN ITEMS c10 torch_cpu)
    add_library(LibTorch::${_libtorch_name} SHARED IMPORTED)
    set_target_properties(
      LibTorch::${_libtorch_name}
      PROPERTIES IMPORTED_LOCATION
                 "${LibTorch_PREFIX}/lib/lib${_libtorch_name}${CMAKE_SHARED_LIBRARY_SUFFIX}")
  endforeach()
  unset(_libtorch_name)
  add_library(LibTorch::torch INTERFACE IMPORTED)
  set_target_properties(
    LibTorch::torch
    PROPERTIES
      INTERFACE_INCLUDE_DIRECTORIES
      "${LibTorch_PREFIX}/include;${LibTorch_PREFIX}/include/torch/csrc/api/include"
      INTERFACE_COMPILE_DEFINITIONS "${_libtorch_definitions}"
      INTERFACE_LINK_LIBRARIES "LibTorch::torch_cpu;LibTorch::c10")
endif()
if(LibTorch_FOUND
   AND NOT TARGET LibTorch::python
   AND EXISTS "${LibTorch_PREFIX}/lib/libtorch_python.so")
  add_library(LibTorch::python INTERFACE IMPORTED)
  set_target_properties(
    LibTorch::python PROPERTIES INTERFACE_LINK_LIBRARIES
                                "${LibTorch_PREFIX}/lib/libtorch_python.so;LibTorch::torch")
  # Two modules share the types of pybind11 only if both have the same name for their ABI. Before
  # version 3, as in torch 2.8, that name contains the version of the compiler's ABI. A module
  # that another compiler makes has to take the name that torch has.
  file(STRINGS "${LibTorch_PREFIX}/lib/libtorch_python.so" _libtorch_abi LIMIT_COUNT 1
       REGEX "__pybind11_internals_v[0-9]+_gcc_libstdcpp_cxxabi[0-9]+__")
  if(_libtorch_abi MATCHES "_cxxabi[0-9]+")
    set_target_properties(
      LibTorch::python PROPERTIES INTERFACE_COMPILE_DEFINITIONS "PYBIND11_BUILD_ABI=\"${CMAKE_MATCH_0}\"")
  endif()
  unset(_libtorch_abi)
endif()
if(LibTorch_FOUND
   AND NOT TARGET LibTorch::cuda
   AND EXISTS "${LibTorch_PREFIX}/lib/libtorch_cuda.so")
  # libtorch_cuda registers its kernels when it is loaded, so it must be linked although no symbol
  # of it is used.
  set(_libtorch_forced "-Wl,--push-state,--no-as-needed")
  string(APPEND _libtorch_forced ",${LibTorch_PREFIX}/lib/libtorch_cuda.so")
  string(APPEND _libtorch_forced ",${LibTorch_PREFIX}/lib/libc10_cuda.so,--pop-state")
  add_library(LibTorch::cuda INTERFACE IMPORTED)
  set_target_properties(LibTorch::cuda PROPERTIES INTERFACE_LINK_LIBRARIES
                                                  "LibTorch::torch;${_libtorch_forced}")
  unset(_libtorch_forced)
endif()
unset(_libtorch_definitions)
