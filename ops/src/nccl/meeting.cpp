#include "nccl/meeting.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <vector>

#include <fmt/format.h>

#include <hvd/core/error.hpp>

namespace hvd::detail {
namespace {

/// Names a GPU among those of all hosts, and the rank in the context that uses it.
struct Place {
  std::int32_t host = 0;
  std::int32_t rank = 0;
  std::array<char, 44> gpu{};

  /// Tells whether both are the same GPU.
  friend bool operator==(const Place& a, const Place& b) {
    return a.host == b.host && a.gpu == b.gpu;
  }
};

void require_different(const std::vector<Place>& places) {
  for (auto second = places.begin(); second != places.end(); ++second) {
    const auto first = std::find(places.begin(), second, *second);
    if (first == second) continue;
    throw Error(Errc::unsupported,
                fmt::format("ranks {} and {} both have tensors on GPU {}, which NCCL refuses; move "
                            "each rank's tensors to the GPU of its local rank",
                            first->rank, second->rank, first->gpu.data()));
  }
}

}  // namespace

ncclUniqueId meet(Backend& host, const GpuRank& self, int rank_in_context, Deadline deadline) {
  Place own{self.host, rank_in_context, {}};
  const std::string gpu = name_of_gpu(self.gpu.index());
  std::copy_n(gpu.begin(), std::min(gpu.size(), own.gpu.size() - 1), own.gpu.begin());
  std::vector<Place> places(static_cast<std::size_t>(self.size));
  const std::vector<std::int64_t> counts(places.size(), static_cast<std::int64_t>(sizeof own));
  const GatherSlice gathered{reinterpret_cast<const std::byte*>(&own),
                             reinterpret_cast<std::byte*>(places.data()), counts};
  host.allgather({{&gathered, 1}, {}, DType::u8}, deadline);
  require_different(places);

  ncclUniqueId id{};
  if (self.rank == 0) {
    const ncclResult_t result = ncclGetUniqueId(&id);
    if (result != ncclSuccess) {
      throw Error(Errc::internal, fmt::format("ncclGetUniqueId: {}", ncclGetErrorString(result)));
    }
  }
  auto* const bytes = reinterpret_cast<std::byte*>(id.internal);
  const TensorSlice sent{bytes, bytes, sizeof id.internal};
  host.broadcast({{&sent, 1}, {}, DType::u8, 0}, deadline);
  return id;
}

}  // namespace hvd::detail
