# The target `docs`: the API reference as HTML, in docs/html of the build folder. Only where Doxygen is found; the
# test docs_doxygen says so where it is not.
find_program(HVD_DOXYGEN doxygen DOC "Doxygen, for the API reference")
mark_as_advanced(HVD_DOXYGEN)

set(HVD_DOCS_OUTPUT "${PROJECT_BINARY_DIR}/docs")
set(HVD_DOXYFILE "${HVD_DOCS_OUTPUT}/Doxyfile")
file(MAKE_DIRECTORY "${HVD_DOCS_OUTPUT}")
configure_file("${PROJECT_SOURCE_DIR}/docs/Doxyfile.in" "${HVD_DOXYFILE}" @ONLY)

if(HVD_DOXYGEN AND PROJECT_IS_TOP_LEVEL)
  add_custom_target(
    docs
    COMMAND "${HVD_DOXYGEN}" "${HVD_DOXYFILE}"
    WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}"
    COMMENT "API reference: ${HVD_DOCS_OUTPUT}/html/index.html"
    VERBATIM)
endif()
