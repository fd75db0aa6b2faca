# share/hvd/build.json: what this build contains, read by `hvdrun --check-build`. It lies at the same
# place relative to bin/ in the build tree and when installed.
foreach(pair IN ITEMS "PMIX:PMIx_VERSION" "MPI:MPI_CXX_VERSION" "NCCL:NCCL_VERSION"
                      "TORCH:LibTorch_VERSION" "TORCH_CUDA:LibTorch_VERSION")
  string(REPLACE ":" ";" pair "${pair}")
  list(GET pair 0 name)
  list(GET pair 1 version)
  set(record_${name} false)
  set(record_${name}_VERSION "")
  if(HVD_HAVE_${name})
    set(record_${name} true)
    set(record_${name}_VERSION "${${version}}")
  endif()
endforeach()
configure_file("${PROJECT_SOURCE_DIR}/cmake/build.json.in"
               "${PROJECT_BINARY_DIR}/share/hvd/build.json" @ONLY)
