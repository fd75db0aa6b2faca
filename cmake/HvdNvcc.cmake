# Compiles single CUDA files with nvcc by a custom command. If CUDA were a language of the project,
# CMake would link a library with such a file as CUDA, and so would a project that uses hvd and has
# C++ only; the CUDA runtime would be linked twice; and nvcc does not accept this project's C++
# flags.

# The kernels only move memory, so code that is compiled for 8.0 runs as fast on 8.6 and 8.9. Machine
# code runs only on later GPUs of the same major version. The driver compiles the PTX of the first
# architecture for other GPUs that lie between, and that of the last one for all that are newer.
set(HVD_CUDA_ARCHITECTURES
    "70;75;80;90;100;120"
    CACHE STRING "GPUs whose machine code is included; others get the PTX of the first or last")

# Sets HVD_NVCC to the path of nvcc, HVD_NVCC_ARCHITECTURES to those architectures of
# HVD_CUDA_ARCHITECTURES that nvcc knows, the lowest first, and HVD_NVCC_WORKS to ON if nvcc compiles
# a kernel for the first of them with this project's C++ compiler as host compiler.
macro(hvd_find_nvcc)
  find_program(
    HVD_NVCC nvcc HINTS ${CUDAToolkit_ROOT} $ENV{CUDAToolkit_ROOT} $ENV{CUDA_HOME} $ENV{CUDA_PATH}
    PATHS /usr/local/cuda
    PATH_SUFFIXES bin)
  mark_as_advanced(HVD_NVCC)
  set(HVD_NVCC_ARCHITECTURES "")
  if(HVD_NVCC)
    execute_process(COMMAND "${HVD_NVCC}" --list-gpu-arch OUTPUT_VARIABLE _hvd_known ERROR_QUIET)
    string(REGEX MATCHALL "[0-9]+" _hvd_known "${_hvd_known}")
    foreach(_hvd_arch IN LISTS HVD_CUDA_ARCHITECTURES)
      if(_hvd_arch IN_LIST _hvd_known)
        list(APPEND HVD_NVCC_ARCHITECTURES ${_hvd_arch})
      endif()
    endforeach()
    list(REMOVE_DUPLICATES HVD_NVCC_ARCHITECTURES)
    list(SORT HVD_NVCC_ARCHITECTURES COMPARE NATURAL)
  endif()
  if(NOT HVD_NVCC_ARCHITECTURES)
    set(HVD_NVCC_WORKS OFF)
  elseif(NOT HVD_NVCC_WORKS)
    file(WRITE "${PROJECT_BINARY_DIR}/nvcc_check.cu"
         "__global__ void f(const __grid_constant__ int i, int* to) { *to = i; }\n")
    list(GET HVD_NVCC_ARCHITECTURES 0 _hvd_arch)
    execute_process(
      COMMAND "${HVD_NVCC}" -ccbin "${CMAKE_CXX_COMPILER}" -std=c++17 -arch=sm_${_hvd_arch} -c -o
              "${PROJECT_BINARY_DIR}/nvcc_check.o" "${PROJECT_BINARY_DIR}/nvcc_check.cu"
      RESULT_VARIABLE _hvd_result
      OUTPUT_QUIET ERROR_QUIET)
    if(_hvd_result EQUAL 0)
      set(HVD_NVCC_WORKS ON CACHE INTERNAL "nvcc compiled a kernel")
    endif()
  endif()
endmacro()

# hvd_cuda_object(<variable> <source>) sets <variable> to the object file of a CUDA source. A target
# lists the object file among its sources.
function(hvd_cuda_object variable source)
  get_filename_component(name "${source}" NAME_WE)
  set(object "${CMAKE_CURRENT_BINARY_DIR}/${name}.cu.o")
  set(code "")
  foreach(arch IN LISTS HVD_NVCC_ARCHITECTURES)
    list(APPEND code -gencode arch=compute_${arch},code=sm_${arch})
  endforeach()
  list(GET HVD_NVCC_ARCHITECTURES 0 first)
  list(GET HVD_NVCC_ARCHITECTURES -1 last)
  set(with_ptx ${first} ${last})
  list(REMOVE_DUPLICATES with_ptx)
  foreach(arch IN LISTS with_ptx)
    list(APPEND code -gencode arch=compute_${arch},code=compute_${arch})
  endforeach()
  add_custom_command(
    OUTPUT "${object}"
    COMMAND ${CMAKE_CXX_COMPILER_LAUNCHER} "${HVD_NVCC}" -ccbin "${CMAKE_CXX_COMPILER}" -std=c++17 -O3
            --expt-relaxed-constexpr -Wno-deprecated-gpu-targets -Xcompiler=-fPIC "$<$<BOOL:${HVD_WARNINGS_AS_ERRORS}>:-Werror=all-warnings>" ${code} "-I${CMAKE_CURRENT_SOURCE_DIR}/src" -MD -MT "${object}" -MF "${object}.d" -c -o
            "${object}" "${CMAKE_CURRENT_SOURCE_DIR}/${source}"
    DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/${source}"
    DEPFILE "${object}.d"
    COMMENT "Building CUDA object ${source}"
    COMMAND_EXPAND_LISTS VERBATIM)
  set_source_files_properties("${object}" PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
  set(${variable} "${object}" PARENT_SCOPE)
endfunction()
