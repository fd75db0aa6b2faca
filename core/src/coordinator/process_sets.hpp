// The process sets of one rank, as its user sees them. Any thread.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

namespace hvd {

class ProcessSets {
 public:
  explicit ProcessSets(int size);

  /// Ranks in the context, ascending; nothing when there is no such set.
  [[nodiscard]] std::optional<std::vector<int>> ranks(std::int32_t id) const;
  void add(std::int32_t id, std::vector<int> ranks);
  void remove(std::int32_t id);

 private:
  mutable std::mutex mutex_;
  std::map<std::int32_t, std::vector<int>> sets_;
};

}  // namespace hvd
