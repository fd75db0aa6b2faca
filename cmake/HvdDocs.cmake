# The target `docs` builds the site of all pages, with search that works without a server, in
# docs/site of the build folder, and the API reference in its folder api. The target exists if
# Sphinx and Doxygen are found (scripts/install_deps --tests); otherwise the tests docs_site and
# docs_doxygen report that they are missing.
find_program(HVD_DOXYGEN doxygen DOC "Doxygen, for the API reference")
find_program(HVD_SPHINX sphinx-build DOC "Sphinx, for the documentation site")
mark_as_advanced(HVD_DOXYGEN HVD_SPHINX)

set(HVD_DOCS_OUTPUT "${PROJECT_BINARY_DIR}/docs/site")
set(HVD_DOXYFILE "${PROJECT_BINARY_DIR}/docs/Doxyfile")
file(MAKE_DIRECTORY "${HVD_DOCS_OUTPUT}")
configure_file("${PROJECT_SOURCE_DIR}/docs/Doxyfile.in" "${HVD_DOXYFILE}" @ONLY)

# Warnings are errors, such as a link to a missing page or a page that no table of contents lists.
set(HVD_SPHINX_COMMAND
    sphinx-build -q -W --keep-going -c "${PROJECT_SOURCE_DIR}/docs" -d "${PROJECT_BINARY_DIR}/docs/doctrees"
    -b html "${PROJECT_SOURCE_DIR}")
if(HVD_SPHINX)
  list(TRANSFORM HVD_SPHINX_COMMAND REPLACE "^sphinx-build$" "${HVD_SPHINX}")
endif()
if(HVD_DOXYGEN AND HVD_SPHINX AND PROJECT_IS_TOP_LEVEL)
  add_custom_target(
    docs
    COMMAND ${HVD_SPHINX_COMMAND} "${HVD_DOCS_OUTPUT}"
    COMMAND "${HVD_DOXYGEN}" "${HVD_DOXYFILE}"
    WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}"
    COMMENT "Documentation: ${HVD_DOCS_OUTPUT}/index.html"
    VERBATIM)
endif()
