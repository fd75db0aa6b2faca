# Finds all dependencies of hvd. docs/reference/dependencies.md has the reason for each.

# This file pins the LibTorch that scripts/install_deps fetches.
set(HVD_LIBTORCH_PINS "${PROJECT_SOURCE_DIR}/scripts/libtorch.txt")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${HVD_LIBTORCH_PINS}")
file(STRINGS "${HVD_LIBTORCH_PINS}" HVD_LIBTORCH_VERSION REGEX "^torch==")
string(REPLACE "torch==" "" HVD_LIBTORCH_VERSION "${HVD_LIBTORCH_VERSION}")
# This file pins the Arrow that scripts/install_deps fetches.
set(HVD_ARROW_PINS "${PROJECT_SOURCE_DIR}/scripts/arrow.txt")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${HVD_ARROW_PINS}")
file(STRINGS "${HVD_ARROW_PINS}" HVD_ARROW_VERSION REGEX "^pyarrow==")
string(REPLACE "pyarrow==" "" HVD_ARROW_VERSION "${HVD_ARROW_VERSION}")

find_package(Threads REQUIRED)
find_package(Boost 1.74 REQUIRED) # headers only
find_package(OpenSSL 3.0 REQUIRED COMPONENTS Crypto)
find_package(fmt 9 REQUIRED CONFIG)
find_package(hwy 1.0 REQUIRED CONFIG)
if(HVD_BUILD_LAUNCHER OR HVD_BUILD_BENCHMARKS OR HVD_BUILD_EXAMPLES)
  find_package(CLI11 2.1 REQUIRED CONFIG)
  find_package(nlohmann_json 3.11 REQUIRED CONFIG)
endif()
if(HVD_BUILD_LAUNCHER)
  find_package(yaml-cpp 0.7 REQUIRED CONFIG)
endif()
if(HVD_BUILD_TESTS)
  find_package(GTest REQUIRED)
endif()

hvd_optional(PMIX AUTO "Bootstrap through PMIx")
hvd_optional(HWLOC AUTO "Binding of ranks to cores")
hvd_optional(MPI AUTO "The MPI backend")
hvd_optional(NCCL AUTO "The NCCL backend, with the CUDA runtime")
hvd_optional(NVCC AUTO "The NCCL backend's own kernel")
hvd_optional(TORCH AUTO "The LibTorch bindings")
# The default is OFF because a CPU program starts much faster without libtorch_cuda.
hvd_optional(TORCH_CUDA OFF "CUDA tensors in the LibTorch bindings")
# A project that contains hvd wants its libraries.
if(PROJECT_IS_TOP_LEVEL)
  set(hvd_python_default AUTO)
else()
  set(hvd_python_default OFF)
endif()
hvd_optional(PYTHON ${hvd_python_default} "The Python package")
hvd_optional(ARROW AUTO "The estimator, on Arrow and Parquet")

if(NOT HVD_WITH_PMIX STREQUAL "OFF")
  find_package(PMIx 4 MODULE QUIET)
endif()
hvd_resolve(PMIX FOUND "${PMIx_FOUND}" NEEDS "pmix.h and libpmix (Debian: libpmix-dev, or PMIx_ROOT)")

# Only hvdrun uses hwloc.
set(hvd_hwloc_usable OFF)
if(HVD_BUILD_LAUNCHER AND NOT HVD_WITH_HWLOC STREQUAL "OFF")
  find_package(Hwloc 2.5 MODULE QUIET)
  set(hvd_hwloc_usable "${Hwloc_FOUND}")
endif()
hvd_resolve(HWLOC FOUND "${hvd_hwloc_usable}" NEEDS
            "the launcher, and hwloc 2.5 or newer (Debian: libhwloc-dev, or Hwloc_ROOT)")

if(NOT HVD_WITH_MPI STREQUAL "OFF")
  set(MPI_CXX_SKIP_MPICXX TRUE) # only the C interface is used
  find_package(MPI 3 QUIET COMPONENTS CXX)
endif()
hvd_resolve(MPI FOUND "${MPI_CXX_FOUND}" NEEDS
            "an MPI 3 library with mpicxx (Debian: libopenmpi-dev openmpi-bin, or MPI_HOME)")

# The tests compile the NCCL backend's real source against a fake runtime, for which the headers are
# enough. So the headers are searched for even when the backend is off; then NCCL::nccl must not be
# used.
find_package(NCCL MODULE QUIET)
hvd_resolve(NCCL FOUND "${NCCL_FOUND}" NEEDS
            "${NCCL_MISSING} (the CUDA toolkit and NCCL; set CUDAToolkit_ROOT or NCCL_ROOT)")

include(HvdNvcc)
if(HVD_HAVE_NCCL AND NOT HVD_WITH_NVCC STREQUAL "OFF")
  hvd_find_nvcc()
else()
  set(HVD_NVCC_WORKS OFF)
endif()
hvd_resolve(NVCC FOUND "${HVD_NVCC_WORKS}" NEEDS
            "NCCL, and nvcc 11.7 or newer that accepts ${CMAKE_CXX_COMPILER} (set CUDAToolkit_ROOT)")

if(HVD_WHEEL AND NOT LibTorch_ROOT)
  find_package(Python3 3.10 REQUIRED COMPONENTS Interpreter)
  execute_process(
    COMMAND "${Python3_EXECUTABLE}" "${PROJECT_SOURCE_DIR}/python/wheel_metadata.py"
    OUTPUT_VARIABLE LibTorch_ROOT
    OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
endif()
if(NOT HVD_WITH_TORCH STREQUAL "OFF")
  find_package(LibTorch 2.6 MODULE QUIET)
endif()
hvd_resolve(TORCH FOUND "${LibTorch_FOUND}" NEEDS
            "LibTorch (run scripts/install_deps, or set CMAKE_PREFIX_PATH, Torch_DIR or LibTorch_ROOT)")
if(HVD_HAVE_TORCH)
  message(STATUS "hvd: LibTorch ${LibTorch_VERSION} in ${LibTorch_PREFIX}")
  if(HVD_BUILD_EXAMPLES)
    find_package(ZLIB REQUIRED)
  endif()
endif()

# A CUDA build of LibTorch contains libtorch_cuda, but not always all libraries that it needs, so
# this checks that a program links with it.
if(HVD_HAVE_TORCH AND NOT HVD_WITH_TORCH_CUDA STREQUAL "OFF" AND TARGET LibTorch::cuda)
  include(CheckCXXSourceCompiles)
  set(CMAKE_REQUIRED_LIBRARIES LibTorch::cuda)
  set(CMAKE_REQUIRED_QUIET ON)
  check_cxx_source_compiles("int main() {}" HVD_TORCH_CUDA_LINKS)
  unset(CMAKE_REQUIRED_LIBRARIES)
  unset(CMAKE_REQUIRED_QUIET)
  if(NOT HVD_TORCH_CUDA_LINKS)
    unset(HVD_TORCH_CUDA_LINKS CACHE) # the next configuration tries again
  endif()
endif()
hvd_resolve(TORCH_CUDA FOUND "${HVD_TORCH_CUDA_LINKS}" NEEDS
            "a CUDA build of LibTorch and every library it needs (scripts/install_deps --cuda)")

# The Python package needs the torch wheel of this Python: libtorch_python differs between versions.
# Before 2.8, c10d tells a backend only of some collectives whether the call is asynchronous.
set(hvd_python_usable OFF)
if(HVD_HAVE_TORCH AND NOT HVD_WITH_PYTHON STREQUAL "OFF" AND TARGET LibTorch::python
   AND LibTorch_VERSION VERSION_GREATER_EQUAL 2.8)
  find_package(Python3 3.10 QUIET COMPONENTS Interpreter Development.Module)
  if(Python3_FOUND AND EXISTS "${LibTorch_PREFIX}/_C.${Python3_SOABI}.so")
    set(hvd_python_usable ON)
  endif()
endif()
hvd_resolve(PYTHON FOUND "${hvd_python_usable}" NEEDS
            "LibTorch 2.8 or newer from the torch wheel of this Python, and Python's headers (Debian: python3-dev)")
if(HVD_HAVE_PYTHON)
  message(STATUS "hvd: Python ${Python3_VERSION}, ${Python3_EXECUTABLE}")
endif()

# The estimator needs LibTorch, and the launcher for hvd::spawn, which starts its processes.
set(hvd_arrow_usable OFF)
if(HVD_HAVE_TORCH AND HVD_BUILD_LAUNCHER AND NOT HVD_WITH_ARROW STREQUAL "OFF")
  find_package(ArrowParquet 21 MODULE QUIET)
  set(hvd_arrow_usable "${ArrowParquet_FOUND}")
endif()
hvd_resolve(ARROW FOUND "${hvd_arrow_usable}" NEEDS
            "LibTorch, the launcher, and Arrow 21 or newer with Parquet (run scripts/install_deps --estimator, or set CMAKE_PREFIX_PATH or Arrow_ROOT)")
if(HVD_HAVE_ARROW)
  message(STATUS "hvd: Arrow ${ArrowParquet_VERSION} in ${ArrowParquet_PREFIX}")
  find_package(nlohmann_json 3.11 REQUIRED CONFIG)
endif()
