# Installs the CMake package: find_package(hvd COMPONENTS core ops torch estimator).
include(CMakePackageConfigHelpers)

set(HVD_PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/hvd)
configure_package_config_file(
  "${PROJECT_SOURCE_DIR}/cmake/hvdConfig.cmake.in" "${PROJECT_BINARY_DIR}/hvdConfig.cmake"
  INSTALL_DESTINATION ${HVD_PACKAGE_DIR})
write_basic_package_version_file("${PROJECT_BINARY_DIR}/hvdConfigVersion.cmake"
                                 COMPATIBILITY SameMinorVersion)
install(
  FILES "${PROJECT_BINARY_DIR}/hvdConfig.cmake" "${PROJECT_BINARY_DIR}/hvdConfigVersion.cmake"
        cmake/FindArrowParquet.cmake cmake/FindLibTorch.cmake cmake/FindNCCL.cmake cmake/FindPMIx.cmake
  DESTINATION ${HVD_PACKAGE_DIR}
  COMPONENT core)
foreach(component IN ITEMS core launcher) # hvdrun reads build.json, also if it is installed alone
  install(
    FILES "${PROJECT_BINARY_DIR}/share/hvd/build.json"
    DESTINATION ${CMAKE_INSTALL_DATADIR}/hvd
    COMPONENT ${component})
endforeach()
