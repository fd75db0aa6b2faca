// Holds the process sets of one rank, as its user sees them. Any thread may call it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace hvd::detail {

class ProcessSets {
 public:
  explicit ProcessSets(int size);

  using Ranks = std::shared_ptr<const std::vector<int>>;

  /// Returns the ranks of a set in the context, ascending, or null when there is no such set. Pair
  /// sets always exist. The result does not outlive this object.
  [[nodiscard]] Ranks ranks(std::int32_t id) const;
  void add(std::int32_t id, std::vector<int> ranks);
  void remove(std::int32_t id);

 private:
  const int size_;
  const std::vector<int> everybody_;  // the ranks of set 0
  mutable std::mutex mutex_;
  std::map<std::int32_t, Ranks> sets_;
};

}  // namespace hvd::detail
