// Errors of the CUDA runtime as hvd::Error.
#pragma once

#include <string_view>

#include <cuda_runtime_api.h>

namespace hvd {

/// Throws Errc::resource when the device is out of memory, else Errc::internal, with CUDA's text.
/// `what` names the call.
void check(cudaError_t result, std::string_view what);

}  // namespace hvd
