# The order in which HVD_CUDA_ARCHITECTURES is given does not matter: the PTX is that of the lowest and of the
# highest. WORK_DIR gets a program in place of nvcc, which knows some architectures.
cmake_minimum_required(VERSION 3.22...3.25)
set(HVD_NVCC "${WORK_DIR}/nvcc")
file(WRITE "${HVD_NVCC}" "#!/bin/sh\nprintf 'compute_%s\\n' 75 80 90 100 120\n")
file(CHMOD "${HVD_NVCC}" PERMISSIONS OWNER_READ OWNER_EXECUTE)
set(PROJECT_BINARY_DIR "${WORK_DIR}")
set(HVD_CUDA_ARCHITECTURES 90 120 70 100 75 90)
include("${CMAKE_CURRENT_LIST_DIR}/../../cmake/HvdNvcc.cmake")
hvd_find_nvcc()
if(NOT HVD_NVCC_ARCHITECTURES STREQUAL "75;90;100;120")
  message(FATAL_ERROR "HVD_NVCC_ARCHITECTURES is ${HVD_NVCC_ARCHITECTURES}")
endif()
