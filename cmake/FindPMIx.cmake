# Finds PMIx. Sets PMIx_FOUND, PMIx_VERSION and the imported target PMIx::PMIx.
# Debian keeps it in /usr/lib/<arch>/pmix2; PMIx_ROOT is honoured.
set(_pmix_paths "/usr/lib/${CMAKE_LIBRARY_ARCHITECTURE}" /usr/lib)
find_path(PMIx_INCLUDE_DIR pmix.h PATHS ${_pmix_paths} PATH_SUFFIXES pmix2/include)
find_library(PMIx_LIBRARY pmix PATHS ${_pmix_paths} PATH_SUFFIXES pmix2/lib)
unset(_pmix_paths)

if(PMIx_INCLUDE_DIR AND EXISTS "${PMIx_INCLUDE_DIR}/pmix_version.h")
  file(STRINGS "${PMIx_INCLUDE_DIR}/pmix_version.h" _pmix_lines
       REGEX "#define PMIX_VERSION_(MAJOR|MINOR|RELEASE) ")
  string(REGEX REPLACE "[^0-9;]" "" _pmix_numbers "${_pmix_lines}")
  string(REGEX REPLACE ";" "." PMIx_VERSION "${_pmix_numbers}")
  unset(_pmix_lines)
  unset(_pmix_numbers)
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(
  PMIx
  REQUIRED_VARS PMIx_LIBRARY PMIx_INCLUDE_DIR
  VERSION_VAR PMIx_VERSION)
mark_as_advanced(PMIx_INCLUDE_DIR PMIx_LIBRARY)

if(PMIx_FOUND AND NOT TARGET PMIx::PMIx)
  add_library(PMIx::PMIx UNKNOWN IMPORTED)
  set_target_properties(
    PMIx::PMIx
    PROPERTIES IMPORTED_LOCATION "${PMIx_LIBRARY}"
               INTERFACE_INCLUDE_DIRECTORIES "${PMIx_INCLUDE_DIR}")
endif()
