# `cpack -G DEB` makes one Debian package of everything that is installed.
set(CPACK_PACKAGE_NAME hvd)
set(CPACK_PACKAGE_CONTACT "the hvd developers <hvd@localhost>")
set(CPACK_RESOURCE_FILE_LICENSE "${PROJECT_SOURCE_DIR}/LICENSE")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON) # the programs' libraries
if(NOT BUILD_SHARED_LIBS) # a project that links the static libraries links theirs too
  set(CPACK_DEBIAN_PACKAGE_DEPENDS "libssl-dev, libfmt-dev, libhwy-dev")
endif()
include(CPack)
