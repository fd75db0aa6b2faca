// Makes the backends of a session for device memory.
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

/// Describes the version of NCCL and what this build lacks.
std::string describe(int ranks, const Copier& copier) {
  int version = 0;
  static_cast<void>(ncclGetVersion(&version));
  return fmt::format("NCCL {}.{}.{} on {} ranks{}{}", version / 10000, version / 100 % 100,
                     version % 100, ranks,
                     copier.scales_for_free() ? "" : "; no nvcc: tensors are copied one by one",
                     nccl_can_register() ? "" : "; before 2.19: no registered memory");
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
  const GpuRank self{topology.rank, topology.size, OwnGpu::undecided(gpu->device),
                     topology.host_of[static_cast<std::size_t>(topology.rank)]};
  if (!gpu->shared) {
    std::unique_ptr<Copier> copier = make_copier();
    if (topology.rank == 0) log(LogLevel::info, 0, describe(topology.size, *copier));
    backends.push_back(std::make_unique<NcclBackend>(self, host, std::move(copier)));
  }
  backends.push_back(std::make_unique<PinnedBackend>(self, host, make_copier()));
  return backends;
}

}  // namespace hvd
