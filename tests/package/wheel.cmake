# Makes Python's wheel and tries it (scripts/wheel), with this build's options: ccache then has all objects.
execute_process(COMMAND "${PYTHON}" -m venv --without-pip "${WORK_DIR}/python" COMMAND_ERROR_IS_FATAL ANY)
file(GLOB site "${WORK_DIR}/python/lib/python3*/site-packages")
file(WRITE "${site}/torch.pth" "${LIBTORCH}/..\n")
execute_process(COMMAND "${WORK_DIR}/python/bin/python" -c "import torch" RESULT_VARIABLE result
                ERROR_VARIABLE error)
if(NOT result EQUAL 0)
  message(STATUS "skipped: needs Python's torch (${error})")
  return()
endif()
separate_arguments(options UNIX_COMMAND "${OPTIONS}")
execute_process(
  COMMAND "${CMAKE_CURRENT_LIST_DIR}/../../scripts/wheel" --python "${WORK_DIR}/python/bin/python" --out
          "${WORK_DIR}/dist" ${options}
  RESULT_VARIABLE result)
if(NOT result MATCHES "^(0|77)$")
  message(FATAL_ERROR "scripts/wheel failed: ${result}")
endif()
