#include "nccl/gpu_choice.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nccl.h>
#include <unistd.h>

#include <hvd/core/internal/session.hpp>
#include <hvd/core/log.hpp>

#include "nccl/cuda.hpp"
#include "transport/rank_view.hpp"

namespace hvd::detail {
namespace {

/// Tells whether CUDA finds no GPU because there is none. It reports a driver that is too old also
/// where there is no driver, and only a driver makes this file.
bool is_without_gpu(cudaError_t result) {
  std::error_code ignored;
  return result == cudaErrorNoDevice || (result == cudaErrorInsufficientDriver &&
                                         !std::filesystem::exists("/dev/nvidiactl", ignored));
}

/// Returns 0 also without a driver, since a machine without a GPU is no error. After any other
/// error it returns 0 too, because a program for CPUs needs no GPU, and warns.
int visible_devices(int rank) {
  int count = 0;
  const cudaError_t result = cudaGetDeviceCount(&count);
  if (result == cudaSuccess) return count;
  static_cast<void>(cudaGetLastError());
  if (!is_without_gpu(result)) {
    log(LogLevel::warn, rank,
        fmt::format("sees no GPU: cudaGetDeviceCount: {} ({})", cudaGetErrorString(result),
                    cudaGetErrorName(result)));
  }
  return 0;
}

/// Tells whether NCCL lets ranks share a GPU, and the user wants them to.
bool ranks_may_share() {
  constexpr int kFirst = 23'000;
  int version = 0;
  const char* const enabled = std::getenv("NCCL_MULTI_RANK_GPU_ENABLE");
  return enabled != nullptr && std::string_view(enabled) == "1" &&
         ncclGetVersion(&version) == ncclSuccess && version >= kFirst;
}

}  // namespace

GpuRank GpuRank::in(std::span<const int> ranks) const {
  return {rank_in_subset(ranks, rank, size), static_cast<int>(ranks.size()), gpu, host};
}

std::string name_of_gpu(int device) {
  return ranks_may_share() ? fmt::format("{} of process {}", bus_id(device), ::getpid())
                           : bus_id(device);
}

std::optional<GpuChoice> choose_gpu(Session& session) {
  const Topology& topology = session.topology();
  const int count = visible_devices(topology.rank);
  const int device = count == 0 ? 0 : topology.local_rank % count;
  const std::vector<std::string> gpus =
      session.bootstrap().exchange("nccl/gpu", count == 0 ? "none" : name_of_gpu(device));

  const auto none = std::find(gpus.begin(), gpus.end(), "none");
  if (none != gpus.end()) {
    if (topology.rank == 0) {
      log(LogLevel::info, 0, fmt::format("no NCCL: rank {} sees no GPU", none - gpus.begin()));
    }
    return std::nullopt;
  }
  // Every rank decides the same from the same list.
  std::map<std::pair<int, std::string>, int> taken;  // rank by host and GPU
  for (int rank = 0; rank < topology.size; ++rank) {
    const auto index = static_cast<std::size_t>(rank);
    const auto [first, fresh] =
        taken.emplace(std::pair(topology.host_of[index], gpus[index]), rank);
    if (fresh) continue;
    if (topology.rank == 0) {
      log(LogLevel::warn, 0,
          fmt::format("ranks {} and {} on {} share GPU {}, which NCCL refuses: tensors of GPUs go "
                      "through pinned host memory; start one rank per GPU for NCCL",
                      first->second, rank, topology.hostnames[index], gpus[index]));
    }
    return GpuChoice{device, true};
  }
  return GpuChoice{device, false};
}

}  // namespace hvd::detail
