// A set of ranks as ascending ranges with gaps between them.
#pragma once

#include <vector>

#include <hvd/core/wire.hpp>

namespace hvd::net {

class RankSet {
 public:
  struct Range {
    int first = 0;
    int end = 0;  ///< behind the last

    friend bool operator==(const Range&, const Range&) = default;
  };

  RankSet() = default;
  explicit RankSet(int rank) : ranges_{{rank, rank + 1}} {}

  void insert(int rank);
  [[nodiscard]] bool contains(int rank) const noexcept;
  [[nodiscard]] const std::vector<Range>& ranges() const noexcept { return ranges_; }
  [[nodiscard]] std::vector<int> ranks() const;  ///< ascending

  void write(WireWriter& out) const;
  /// Throws Errc::protocol unless it is a set of one or more of the ranks `first`, … up to `end`,
  /// without it, as `write` writes it.
  [[nodiscard]] static RankSet read(WireReader& in, int first, int end);

  friend bool operator==(const RankSet&, const RankSet&) = default;

 private:
  std::vector<Range> ranges_;
};

}  // namespace hvd::net
