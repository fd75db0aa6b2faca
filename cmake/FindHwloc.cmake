# Finds hwloc. Sets Hwloc_FOUND, Hwloc_VERSION and the imported target Hwloc::Hwloc. Hwloc_ROOT is honoured.
find_path(Hwloc_INCLUDE_DIR hwloc.h)
find_library(Hwloc_LIBRARY hwloc)

# Debian keeps the file with the version in the folder of the architecture.
find_path(Hwloc_CONFIG_DIR hwloc/autogen/config.h
          HINTS "${Hwloc_INCLUDE_DIR}" "${Hwloc_INCLUDE_DIR}/${CMAKE_LIBRARY_ARCHITECTURE}")
if(Hwloc_CONFIG_DIR)
  file(STRINGS "${Hwloc_CONFIG_DIR}/hwloc/autogen/config.h" _hwloc_line
       REGEX "#define HWLOC_VERSION \"")
  string(REGEX REPLACE ".*\"([0-9.]+).*" "\\1" Hwloc_VERSION "${_hwloc_line}")
  unset(_hwloc_line)
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(
  Hwloc
  REQUIRED_VARS Hwloc_LIBRARY Hwloc_INCLUDE_DIR
  VERSION_VAR Hwloc_VERSION)
mark_as_advanced(Hwloc_INCLUDE_DIR Hwloc_LIBRARY Hwloc_CONFIG_DIR)

if(Hwloc_FOUND AND NOT TARGET Hwloc::Hwloc)
  add_library(Hwloc::Hwloc UNKNOWN IMPORTED)
  set_target_properties(
    Hwloc::Hwloc
    PROPERTIES IMPORTED_LOCATION "${Hwloc_LIBRARY}"
               INTERFACE_INCLUDE_DIRECTORIES "${Hwloc_INCLUDE_DIR}")
endif()
