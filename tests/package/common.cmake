# Shared by the scripts of this folder.

# run(<what> command...): fails the test when the command does; leaves its output in `output`.
function(run what)
  execute_process(
    COMMAND ${ARGN}
    RESULT_VARIABLE result
    OUTPUT_VARIABLE output
    ERROR_VARIABLE output)
  message(STATUS "${what}\n${output}")
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "${what} failed: ${result}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

# run_failing(<what> <expected text> command...): the command must fail and say so.
function(run_failing what expected)
  execute_process(
    COMMAND ${ARGN}
    RESULT_VARIABLE result
    OUTPUT_VARIABLE output
    ERROR_VARIABLE output)
  message(STATUS "${what}\n${output}")
  string(REGEX REPLACE "[ \n]+" " " flat "${output}") # CMake wraps its messages
  string(FIND "${flat}" "${expected}" position)
  if(result EQUAL 0 OR position EQUAL -1)
    message(FATAL_ERROR "${what}: expected a failure that says '${expected}', got ${result}")
  endif()
endfunction()

function(expect_output text)
  string(FIND "${output}" "${text}" position)
  if(position EQUAL -1)
    message(FATAL_ERROR "expected '${text}' in the output above")
  endif()
endfunction()

set(ENV{CMAKE_PREFIX_PATH} "${PREFIX}")
set(configure_command "${CMAKE_COMMAND}" -G "${GENERATOR}" "-DCMAKE_CXX_COMPILER=${CXX}" -B
                      "${WORK_DIR}")
file(REMOVE_RECURSE "${WORK_DIR}")
