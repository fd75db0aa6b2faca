// In place of make_nccl_backend.cpp where the build has no NCCL.
#include <hvd/ops/backends.hpp>

namespace hvd {

std::unique_ptr<Backend> make_nccl_backend(Session&, Backend&) { return nullptr; }

}  // namespace hvd
