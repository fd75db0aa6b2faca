vcpkg_download_distfile(
  ARCHIVE
  URLS "file:///hvd-${VERSION}.tar.gz" # the release's archive
  FILENAME "hvd-${VERSION}.tar.gz"
  SKIP_SHA512) # the release's checksum comes here
vcpkg_extract_source_archive(SOURCE_PATH ARCHIVE "${ARCHIVE}")

vcpkg_check_features(OUT_FEATURE_OPTIONS FEATURE_OPTIONS FEATURES torch HVD_WITH_TORCH)
vcpkg_cmake_configure(
  SOURCE_PATH "${SOURCE_PATH}"
  OPTIONS
    ${FEATURE_OPTIONS}
    -DHVD_BUILD_TESTS=OFF
    -DHVD_BUILD_EXAMPLES=OFF
    -DHVD_BUILD_BENCHMARKS=OFF
    -DHVD_CCACHE=OFF
    -DHVD_WITH_ARROW=OFF
    -DHVD_WITH_HWLOC=OFF
    -DHVD_WITH_MPI=OFF
    -DHVD_WITH_NCCL=OFF
    -DHVD_WITH_PMIX=OFF
    -DHVD_WITH_PYTHON=OFF)
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(CONFIG_PATH lib/cmake/hvd)
vcpkg_copy_tools(TOOL_NAMES hvdrun hvd_selftest hvdtrace AUTO_CLEAN)
# `hvdrun --check-build` looks for this file two folders above itself.
file(INSTALL "${CURRENT_PACKAGES_DIR}/share/hvd/build.json"
     DESTINATION "${CURRENT_PACKAGES_DIR}/tools/share/hvd")
file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/debug/include" "${CURRENT_PACKAGES_DIR}/debug/share")
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
