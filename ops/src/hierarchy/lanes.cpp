#include "hierarchy/lanes.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>

#include <hvd/core/internal/backend.hpp>

#include "fusion/buffer.hpp"

namespace hvd::detail {
namespace {

/// Returns the first lane of a local rank among `ranks` of a host.
int first_lane(int lanes, int ranks, int local_rank) { return lanes * local_rank / ranks; }

}  // namespace

Lanes plan_lanes(std::span<const int> host_of, int rank) {
  std::vector<std::vector<int>> hosts;
  for (std::size_t r = 0; r < host_of.size(); ++r) {
    const auto host = static_cast<std::size_t>(host_of[r]);
    if (hosts.size() <= host) hosts.resize(host + 1);
    hosts[host].push_back(static_cast<int>(r));
  }
  Lanes lanes;
  for (const auto& ranks : hosts)
    lanes.count = std::max(lanes.count, static_cast<int>(ranks.size()));
  lanes.host = hosts[static_cast<std::size_t>(host_of[static_cast<std::size_t>(rank)])];
  const int here = static_cast<int>(lanes.host.size());
  lanes.local_rank = static_cast<int>(std::lower_bound(lanes.host.begin(), lanes.host.end(), rank) -
                                      lanes.host.begin());
  for (int local = 0; local <= here; ++local) {
    lanes.begin.push_back(first_lane(lanes.count, here, local));
  }
  const int end = lanes.begin[static_cast<std::size_t>(lanes.local_rank) + 1];
  for (int lane = lanes.first(); lane < end; ++lane) {
    std::vector<int>& owners = lanes.owners.emplace_back();
    for (const auto& ranks : hosts) {
      const int size = static_cast<int>(ranks.size());
      int local = 0;
      while (local + 1 < size && first_lane(lanes.count, size, local + 1) <= lane) ++local;
      owners.push_back(ranks[static_cast<std::size_t>(local)]);
    }
    std::sort(owners.begin(), owners.end());
  }
  return lanes;
}

std::vector<int> hosts_among(std::span<const int> host_of, std::span<const int> ranks) {
  std::map<int, int> numbers;
  std::vector<int> hosts;
  for (const int rank : ranks) {
    const auto known =
        numbers.emplace(host_of[static_cast<std::size_t>(rank)], std::ssize(numbers));
    hosts.push_back(known.first->second);
  }
  return hosts;
}

std::optional<EvenHosts> EvenHosts::of(std::span<const int> host_of) {
  EvenHosts shape{1 + host_of.back(), 0};
  if (std::ssize(host_of) % shape.hosts != 0) return std::nullopt;
  shape.each = static_cast<int>(std::ssize(host_of)) / shape.hosts;
  for (int rank = 0; rank < std::ssize(host_of); ++rank) {
    if (host_of[static_cast<std::size_t>(rank)] != rank / shape.each) return std::nullopt;
  }
  return shape;
}

LaneParts::LaneParts(const EvenHosts& shape, int rank,
                     std::span<const std::span<const std::int64_t>> counts, DType dtype) {
  const auto each = static_cast<std::size_t>(shape.each);
  const auto local_rank = static_cast<std::size_t>(rank) % each;
  const auto bytes = [&](std::int64_t elements) { return bytes_of(elements, dtype); };
  for (std::size_t tensor = 0; tensor < counts.size(); ++tensor) {
    Tensor& own = tensors_.emplace_back();
    own.offset = bytes_;
    std::size_t in_tensor = 0;
    for (int host = 0; host < shape.hosts; ++host) {
      const auto of_host = counts[tensor].subspan(static_cast<std::size_t>(host) * each, each);
      pieces_.push_back({tensor, in_tensor, bytes_, of_host});
      in_tensor += bytes(std::accumulate(of_host.begin(), of_host.end(), std::int64_t{0}));
      own.counts.push_back(of_host[local_rank]);
      bytes_ += bytes(of_host[local_rank]);
    }
    bytes_ = FusionBuffer::aligned(bytes_);
  }
}

}  // namespace hvd::detail
