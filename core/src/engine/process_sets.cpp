#include "engine/process_sets.hpp"

#include <utility>

#include <hvd/core/internal/all_ranks.hpp>
#include <hvd/core/internal/pair_set.hpp>
#include <hvd/core/process_set.hpp>

namespace hvd::detail {

ProcessSets::ProcessSets(int size) : size_(size), everybody_(all_ranks(size)) {}

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
