#include "nccl/gpu_choice.hpp"

#include <array>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <hvd/core/log.hpp>
#include <hvd/core/session.hpp>

#include "nccl/cuda_check.hpp"

namespace hvd {
namespace {

/// 0 without a driver as well: a machine without a GPU is no error.
int visible_devices() {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  static_cast<void>(cudaGetLastError());
  return 0;
}

std::string bus_id(int device) {
  std::array<char, 32> text{};
  check(cudaDeviceGetPCIBusId(text.data(), static_cast<int>(text.size()), device),
        "cudaDeviceGetPCIBusId");
  return text.data();
}

std::vector<std::string> publish(Session& session, const std::string& mine) {
  const Topology& topology = session.topology();
  const auto key = [](int rank) { return fmt::format("nccl/gpu/{}", rank); };
  session.store().set(key(topology.rank), std::as_bytes(std::span(mine)), session.start_deadline());
  std::vector<std::string> all;
  for (int rank = 0; rank < topology.size; ++rank) {
    const Bytes value = session.store().wait(key(rank), session.start_deadline());
    std::string text;
    for (const std::byte byte : value) text.push_back(static_cast<char>(byte));
    all.push_back(std::move(text));
  }
  return all;
}

}  // namespace

std::optional<int> choose_gpu(Session& session) {
  const Topology& topology = session.topology();
  const int count = visible_devices();
  const int device = count == 0 ? 0 : topology.local_rank % count;
  const std::vector<std::string> gpus =
      publish(session, count == 0 ? std::string("none") : bus_id(device));

  // Every rank draws the same conclusion from the same list.
  std::set<std::pair<int, std::string>> taken;
  for (int rank = 0; rank < topology.size; ++rank) {
    const auto index = static_cast<std::size_t>(rank);
    if (gpus[index] == "none") {
      if (topology.rank == 0) {
        log(LogLevel::info, 0, fmt::format("no NCCL: rank {} sees no GPU", rank));
      }
      return std::nullopt;
    }
    if (!taken.emplace(topology.host_of[index], gpus[index]).second) {
      if (topology.rank == 0) {
        log(LogLevel::warn, 0,
            fmt::format("no NCCL: rank {} on {} would share GPU {} with another rank, which NCCL "
                        "refuses; start at most one rank per GPU",
                        rank, topology.hostnames[index], gpus[index]));
      }
      return std::nullopt;
    }
  }
  return device;
}

}  // namespace hvd
