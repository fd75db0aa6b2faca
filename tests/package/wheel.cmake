# Makes the wheel for a Python that has this build's LibTorch. The script tries it in a fresh environment.
include("${CMAKE_CURRENT_LIST_DIR}/common.cmake")
unset(ENV{CMAKE_PREFIX_PATH}) # of the installed copy, which this test does not use
string(REGEX MATCH "^[0-9]+[.][0-9]+" torch "${LIBTORCH_VERSION}")
run("a Python with torch" "${PYTHON}" -m venv --without-pip "${WORK_DIR}/python")
file(GLOB site "${WORK_DIR}/python/lib/python3*/site-packages")
get_filename_component(packages "${LIBTORCH}" DIRECTORY)
file(WRITE "${site}/torch.pth" "${packages}\n")
# With the options of this build, ccache has nearly all objects.
execute_process(COMMAND "${WHEEL}" --python "${WORK_DIR}/python/bin/python" --out "${WORK_DIR}/dist" "HVD_HIDE_PATHS=${HIDE_PATHS}"
                        "HVD_WARNINGS_AS_ERRORS=${WARNINGS_AS_ERRORS}"
                        "HVD_WITH_MPI=${MPI}" "HVD_WITH_NCCL=${NCCL}" "HVD_WITH_PMIX=${PMIX}"
                RESULT_VARIABLE result)
if(result EQUAL 77)
  return() # it says what it needs
elseif(NOT result EQUAL 0)
  message(FATAL_ERROR "scripts/wheel failed: ${result}")
endif()
file(GLOB wheels "${WORK_DIR}/dist/*")
if(NOT wheels MATCHES "/hvd-[0-9.]+\\+torch${torch}-cp[0-9]+-cp[0-9]+-[a-z0-9_.]*linux[a-z0-9_.]*\\.whl$")
  message(FATAL_ERROR "one wheel was expected, with the version of torch in its name: ${wheels}")
endif()
