// Replaces make_nccl_backend.cpp and capture.cpp where the build has no NCCL.
#include <hvd/ops/internal/backends.hpp>
#include <hvd/ops/internal/capture.hpp>

namespace hvd {

std::vector<std::unique_ptr<Backend>> make_nccl_backends(Session&, Backend&) { return {}; }

bool gpu_copies_convert() noexcept { return false; }

bool detail::is_capturing(void*) noexcept { return false; }

detail::CaptureModeGuard::CaptureModeGuard() noexcept = default;

detail::CaptureModeGuard::~CaptureModeGuard() { static_cast<void>(previous_); }

}  // namespace hvd
