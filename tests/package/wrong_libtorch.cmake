# A LibTorch of another version comes first on the path: hvd refuses it and says which it wants.
include("${CMAKE_CURRENT_LIST_DIR}/common.cmake")
set(other "${WORK_DIR}/other_libtorch")
file(WRITE "${other}/lib/libtorch_cpu.so" "")
file(WRITE "${other}/include/torch/csrc/api/include/torch/torch.h" "")
file(WRITE "${other}/share/cmake/Torch/TorchConfigVersion.cmake" "set(PACKAGE_VERSION \"2.6.1\")\n")
set(ENV{CMAKE_PREFIX_PATH} "${PREFIX}:${other}")
run_failing(
  "configure" "built against LibTorch ${LIBTORCH_VERSION}, but LibTorch 2.6.1 was found"
  ${configure_command} -S "${SOURCE_DIR}/torch_app")

# A project that can do without LibTorch is configured all the same.
file(REMOVE "${WORK_DIR}/CMakeCache.txt")
run("configure without it" ${configure_command} -S "${SOURCE_DIR}/core_app" -DOPTIONAL=torch)
