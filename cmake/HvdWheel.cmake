# Sets what differs in a build for Python's wheel (pyproject.toml).

# Everything that is loaded is in the wheel or in torch's, which lies beside it; the paths of the machine that built it
# are useless elsewhere.
set(CMAKE_INSTALL_RPATH "$ORIGIN/../lib;$ORIGIN/../../torch/lib")
set(CMAKE_INSTALL_RPATH_USE_LINK_PATH OFF)
set(HVD_LIBTORCH_HINT "\${CMAKE_CURRENT_LIST_DIR}/../../../../torch")
