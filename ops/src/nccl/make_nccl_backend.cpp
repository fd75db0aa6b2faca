// The backends of a session for device memory.
#include <cstring>
#include <span>
#include <string>

#include <fmt/format.h>

#include <hvd/core/log.hpp>
#include <hvd/core/session.hpp>
#include <hvd/ops/backends.hpp>

#include "nccl/gpu_choice.hpp"
#include "nccl/nccl_backend.hpp"
#include "nccl/nccl_features.hpp"
#include "nccl/pinned_backend.hpp"

namespace hvd {
namespace {

/// Rank 0 makes it, the store carries it.
ncclUniqueId agree_on_id(Session& session) {
  constexpr std::string_view kKey = "nccl/unique_id";
  ncclUniqueId id{};
  if (session.topology().rank == 0) {
    const ncclResult_t result = ncclGetUniqueId(&id);
    if (result != ncclSuccess) {
      throw Error(Errc::internal, fmt::format("ncclGetUniqueId: {}", ncclGetErrorString(result)));
    }
    session.store().set(kKey, std::as_bytes(std::span(id.internal)), session.start_deadline());
    return id;
  }
  const Bytes value = session.store().wait(kKey, session.start_deadline());
  if (value.size() != sizeof id.internal) {
    throw Error(Errc::protocol, fmt::format("an NCCL id of {} bytes in the store", value.size()));
  }
  std::memcpy(id.internal, value.data(), value.size());
  return id;
}

/// What this build and this NCCL do, and what they do without.
std::string describe(int ranks, const Copier& copier) {
  int version = 0;
  static_cast<void>(ncclGetVersion(&version));
  return fmt::format("NCCL {}.{}.{} on {} ranks{}{}", version / 10000, version / 100 % 100,
                     version % 100, ranks,
                     copier.scales_for_free() ? "" : "; no nvcc: tensors are copied one by one",
                     nccl_can_split() ? "" : "; before 2.19: no registered memory, no splitting");
}

std::unique_ptr<Copier> make_copier() {
  auto copier = make_kernel_copier();
  return copier ? std::move(copier) : make_plain_copier();
}

}  // namespace

std::vector<std::unique_ptr<Backend>> make_nccl_backends(Session& session, Backend& host) {
  std::vector<std::unique_ptr<Backend>> backends;
  const std::optional<GpuChoice> gpu = choose_gpu(session);
  if (!gpu) return backends;
  const Topology& topology = session.topology();
  const GpuPlace place{topology.rank, topology.size, gpu->device};
  if (!gpu->shared) {
    const ncclUniqueId id = agree_on_id(session);
    std::unique_ptr<Copier> copier = make_copier();
    if (topology.rank == 0) log(LogLevel::info, 0, describe(topology.size, *copier));
    backends.push_back(
        std::make_unique<NcclBackend>(place, id, session.start_deadline(), std::move(copier)));
  }
  backends.push_back(std::make_unique<PinnedBackend>(place, host, make_copier()));
  return backends;
}

}  // namespace hvd
