# The recipes in packaging/ are well-formed, and name the version that this source has.
foreach(recipe IN ITEMS spack/package.py conda/recipe.yaml vcpkg/hvd/vcpkg.json)
  file(READ "${PACKAGING}/${recipe}" text)
  string(FIND "${text}" "\"${VERSION}\"" position)
  if(position EQUAL -1)
    message(FATAL_ERROR "packaging/${recipe} does not name version ${VERSION}")
  endif()
endforeach()

# A recipe builds neither tests, examples nor benchmarks, and decides about each part that the build would use where the machine has it.
foreach(recipe IN ITEMS spack/package.py conda/recipe.yaml vcpkg/hvd/portfile.cmake)
  file(READ "${PACKAGING}/${recipe}" options)
  foreach(option IN ITEMS BUILD_BENCHMARKS BUILD_EXAMPLES BUILD_TESTS WITH_ARROW WITH_MPI WITH_NCCL WITH_PMIX WITH_PYTHON
                          WITH_TORCH)
    if(NOT options MATCHES "HVD_${option}[^_A-Z]")
      message(FATAL_ERROR "packaging/${recipe} does not set HVD_${option}")
    endif()
  endforeach()
endforeach()

string(JSON name GET "${text}" name) # vcpkg.json; an error ends the script
execute_process(COMMAND "${PYTHON}" -c "import ast, sys; ast.parse(sys.stdin.read())"
                INPUT_FILE "${PACKAGING}/spack/package.py" COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND "${PYTHON}" -c "import yaml" RESULT_VARIABLE no_yaml ERROR_QUIET)
if(NOT no_yaml)
  execute_process(COMMAND "${PYTHON}" -c "import sys, yaml; yaml.safe_load(sys.stdin)"
                  INPUT_FILE "${PACKAGING}/conda/recipe.yaml" COMMAND_ERROR_IS_FATAL ANY)
endif()

# vcpkg's functions do nothing here, but a function that vcpkg does not have is an error.
foreach(function IN ITEMS vcpkg_download_distfile vcpkg_extract_source_archive vcpkg_check_features
                          vcpkg_cmake_configure vcpkg_cmake_install vcpkg_cmake_config_fixup
                          vcpkg_copy_tools vcpkg_install_copyright)
  cmake_language(EVAL CODE "macro(${function})\nendmacro()")
endforeach()
set(CURRENT_PACKAGES_DIR "${WORK_DIR}")
file(REMOVE_RECURSE "${WORK_DIR}")
file(WRITE "${WORK_DIR}/share/hvd/build.json" "{}")
include("${PACKAGING}/vcpkg/hvd/portfile.cmake")
if(NOT EXISTS "${WORK_DIR}/tools/share/hvd/build.json") # where tools/hvd/hvdrun looks for it
  message(FATAL_ERROR "the port puts build.json where hvdrun does not find it")
endif()
