#include "coordinator/process_sets.hpp"

#include <numeric>
#include <utility>

namespace hvd {

ProcessSets::ProcessSets(int size) {
  std::vector<int>& everybody = sets_[0];
  everybody.resize(static_cast<std::size_t>(size));
  std::iota(everybody.begin(), everybody.end(), 0);
}

std::optional<std::vector<int>> ProcessSets::ranks(std::int32_t id) const {
  const std::lock_guard lock(mutex_);
  const auto at = sets_.find(id);
  if (at == sets_.end()) return std::nullopt;
  return at->second;
}

void ProcessSets::add(std::int32_t id, std::vector<int> ranks) {
  const std::lock_guard lock(mutex_);
  sets_.insert_or_assign(id, std::move(ranks));
}

void ProcessSets::remove(std::int32_t id) {
  const std::lock_guard lock(mutex_);
  sets_.erase(id);
}

}  // namespace hvd
