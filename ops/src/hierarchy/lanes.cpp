#include "hierarchy/lanes.hpp"

#include <algorithm>
#include <iterator>
#include <map>

namespace hvd {
namespace {

/// The first lane of the rank at `place` among `ranks` of a host.
int first_lane(int lanes, int ranks, int place) { return lanes * place / ranks; }

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
  lanes.place = static_cast<int>(std::lower_bound(lanes.host.begin(), lanes.host.end(), rank) -
                                 lanes.host.begin());
  for (int place = 0; place <= here; ++place) {
    lanes.begin.push_back(first_lane(lanes.count, here, place));
  }
  const int end = lanes.begin[static_cast<std::size_t>(lanes.place) + 1];
  for (int lane = lanes.first(); lane < end; ++lane) {
    std::vector<int>& owners = lanes.owners.emplace_back();
    for (const auto& ranks : hosts) {
      const int size = static_cast<int>(ranks.size());
      int place = 0;
      while (place + 1 < size && first_lane(lanes.count, size, place + 1) <= lane) ++place;
      owners.push_back(ranks[static_cast<std::size_t>(place)]);
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

}  // namespace hvd
