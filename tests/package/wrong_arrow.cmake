# An Arrow of another version comes first on the path: hvd refuses it and says which it found.
include("${CMAKE_CURRENT_LIST_DIR}/common.cmake")
set(other "${WORK_DIR}/other/pyarrow")
file(WRITE "${other}/libarrow.so.900" "")
file(WRITE "${other}/libparquet.so.900" "")
file(WRITE "${other}/include/arrow/api.h" "")
file(WRITE "${other}/include/arrow/util/config.h" "#define ARROW_VERSION_STRING \"9.0.1\"\n")
set(ENV{CMAKE_PREFIX_PATH} "${PREFIX}:${LIBTORCH}:${other}")
run_failing("configure" "with Parquet; Arrow 9.0.1 in ${other} was found" ${configure_command} -S
            "${SOURCE_DIR}/estimator_app")

# A project that can do without it is configured all the same.
file(REMOVE "${WORK_DIR}/CMakeCache.txt")
run("configure without it" ${configure_command} -S "${SOURCE_DIR}/core_app" -DOPTIONAL=estimator)
