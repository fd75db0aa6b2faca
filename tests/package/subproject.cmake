# Configures a project that contains hvd, and compiles its own file. hvd's files are not compiled again; the plan of the
# build shows that they would be, and that hvd's tests, examples and install rules would not.
include("${CMAKE_CURRENT_LIST_DIR}/common.cmake")
set(configure_project ${configure_command} -S "${SOURCE_DIR}/subproject" "-DHVD_SOURCE=${SOURCE_DIR}/../.." "-DFETCH=${FETCH}"
                      "-DFETCHCONTENT_SOURCE_DIR_HVD=${SOURCE_DIR}/../.."
                      -DHVD_WITH_TORCH=OFF -DHVD_WITH_MPI=OFF -DHVD_WITH_NCCL=OFF)
run("configure" ${configure_project})
run("plan" ninja -C "${WORK_DIR}" -n subproject)
expect_output("libhvd_core.a")
expect_output("executable subproject")
run("targets" ninja -C "${WORK_DIR}" -t targets all)
expect_output("/hvdrun")
string(REGEX MATCH "core_version_test|train_mnist|gtest" unwanted "${output}")
if(unwanted)
  message(FATAL_ERROR "a project that contains hvd also builds ${unwanted}")
endif()
file(GLOB_RECURSE package "${WORK_DIR}/hvdConfig.cmake")
if(package)
  message(FATAL_ERROR "a project that contains hvd also installs it")
endif()
run("compile" ninja -C "${WORK_DIR}" CMakeFiles/subproject.dir${SOURCE_DIR}/core_app/main.cpp.o)

run("configure with the install rules" ${configure_project} -DHVD_INSTALL=ON)
if(EXISTS "${WORK_DIR}/CPackConfig.cmake")
  message(FATAL_ERROR "a project that contains hvd gets hvd's settings of CPack")
endif()
