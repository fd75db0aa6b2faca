// The hashes of all states that were seen: 16 bytes each, in an open hash table.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <vector>

#include "state_hash.hpp"

namespace hvd::explore {

class VisitedSet {
 public:
  /// Returns false when the set has the hash already.
  bool insert(const StateHash& hash);
  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }
  /// A sum over the set, which does not depend on the order of insertion.
  [[nodiscard]] std::uint64_t sum() const noexcept { return sum_; }
  void save(std::ostream& out) const;
  void load(std::istream& in);

 private:
  [[nodiscard]] StateHash& slot_of(const StateHash& hash);

  std::vector<StateHash> slots_ = std::vector<StateHash>(1 << 16);  // all zeros: empty
  std::uint64_t size_ = 0;
  std::uint64_t sum_ = 0;
};

}  // namespace hvd::explore
