#include "engine/process_sets.hpp"

#include <numeric>
#include <utility>

#include <hvd/core/internal/pair_set.hpp>
#include <hvd/core/process_set.hpp>

namespace hvd::detail {

ProcessSets::ProcessSets(int size)
    : size_(size), everybody_([size] {
        std::vector<int> ranks(static_cast<std::size_t>(size));
        std::iota(ranks.begin(), ranks.end(), 0);
        return ranks;
      }()) {}

ProcessSets::Ranks ProcessSets::ranks(std::int32_t id) const {
  if (id == 0) return {Ranks(), &everybody_};  // the pointer owns nothing
  if (auto pair = pair_members(id, size_)) {
    return std::make_shared<const std::vector<int>>(*std::move(pair));
  }
  const std::lock_guard lock(mutex_);
  const auto at = sets_.find(id);
  return at == sets_.end() ? nullptr : at->second;
}

void ProcessSets::add(std::int32_t id, std::vector<int> ranks) {
  const std::lock_guard lock(mutex_);
  sets_.insert_or_assign(id, std::make_shared<const std::vector<int>>(std::move(ranks)));
}

void ProcessSets::remove(std::int32_t id) {
  const std::lock_guard lock(mutex_);
  sets_.erase(id);
}

}  // namespace hvd::detail
