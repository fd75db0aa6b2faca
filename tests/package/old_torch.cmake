# A wheel of torch before 2.8 is enough for C++, but not for the Python package, which then is not built.
include("${CMAKE_CURRENT_LIST_DIR}/common.cmake")
unset(ENV{CMAKE_PREFIX_PATH}) # of the installed copy, which this test does not use
set(wheel "${WORK_DIR}/packages/torch")
foreach(file IN ITEMS lib/libtorch_cpu.so lib/libtorch_python.so _C.${SOABI}.so
                      include/torch/csrc/api/include/torch/torch.h)
  file(WRITE "${wheel}/${file}" "")
endforeach()
set(configure_hvd ${configure_command} -S "${SOURCE_DIR}/../.." "-DLibTorch_ROOT=${wheel}" "-DPython3_EXECUTABLE=${PYTHON}"
                  -DHVD_BUILD_TESTS=OFF -DHVD_BUILD_EXAMPLES=OFF -DHVD_BUILD_BENCHMARKS=OFF -DHVD_WITH_MPI=OFF
                  -DHVD_WITH_NCCL=OFF -DHVD_WITH_ARROW=OFF)

file(WRITE "${wheel}/share/cmake/Torch/TorchConfigVersion.cmake" "set(PACKAGE_VERSION \"2.7.1\")\n")
run("configure with 2.7.1" ${configure_hvd})
expect_output("hvd: TORCH ON")
expect_output("hvd: PYTHON OFF")
run_failing("require the package with 2.7.1" "HVD_WITH_PYTHON=ON, but it was not found. Missing: LibTorch 2.8 or newer"
            ${configure_hvd} -DHVD_WITH_PYTHON=ON)

file(WRITE "${wheel}/share/cmake/Torch/TorchConfigVersion.cmake" "set(PACKAGE_VERSION \"2.8.0\")\n")
run("configure with 2.8.0" ${configure_hvd} -DHVD_WITH_PYTHON=AUTO)
expect_output("hvd: PYTHON ON")
