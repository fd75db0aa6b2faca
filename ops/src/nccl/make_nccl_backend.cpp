// Makes the backends of a session for device memory.
#include <cstring>
#include <string>

#include <fmt/format.h>

#include <hvd/core/internal/session.hpp>
#include <hvd/core/log.hpp>
#include <hvd/ops/internal/backends.hpp>

#include "nccl/gpu_choice.hpp"
#include "nccl/nccl_backend.hpp"
#include "nccl/nccl_features.hpp"
#include "nccl/pinned_backend.hpp"

namespace hvd {

using namespace detail;

namespace {

/// Returns rank 0's id on every rank.
ncclUniqueId agree_on_id(const Session& session) {
  ncclUniqueId id{};
  const std::string value = session.bootstrap().share("nccl/unique_id", [&] {
    const ncclResult_t result = ncclGetUniqueId(&id);
    if (result != ncclSuccess) {
      throw Error(Errc::internal, fmt::format("ncclGetUniqueId: {}", ncclGetErrorString(result)));
    }
    return std::string(id.internal, sizeof id.internal);
  });
  if (value.size() != sizeof id.internal) {
    throw Error(Errc::protocol, fmt::format("an NCCL id of {} bytes in the store", value.size()));
  }
  std::memcpy(id.internal, value.data(), value.size());
  return id;
}

/// Describes the version of NCCL and what this build lacks.
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
  const GpuRank self{topology.rank, topology.size, gpu->device};
  if (!gpu->shared) {
    const ncclUniqueId id = agree_on_id(session);
    std::unique_ptr<Copier> copier = make_copier();
    if (topology.rank == 0) log(LogLevel::info, 0, describe(topology.size, *copier));
    backends.push_back(
        std::make_unique<NcclBackend>(self, id, session.start_deadline(), std::move(copier)));
  }
  backends.push_back(std::make_unique<PinnedBackend>(self, host, make_copier()));
  return backends;
}

}  // namespace hvd
