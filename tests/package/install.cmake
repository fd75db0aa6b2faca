file(REMOVE_RECURSE "${PREFIX}")
execute_process(COMMAND "${CMAKE_COMMAND}" --install "${BUILD_DIR}" --prefix "${PREFIX}"
                COMMAND_ERROR_IS_FATAL ANY)
foreach(file IN ITEMS bin/hvdrun bin/hvd_selftest share/hvd/build.json include/hvd/hvd.hpp)
  if(NOT EXISTS "${PREFIX}/${file}")
    message(FATAL_ERROR "the install tree has no ${file}")
  endif()
endforeach()
