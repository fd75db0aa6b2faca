// Messages that wait for a stream, each with the ranks it is from, or for. Equal ones are one.
// Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <span>

#include <hvd/core/wire.hpp>

#include "net/rank_set.hpp"

namespace hvd::net {

class MergeQueue {
 public:
  struct Entry {
    RankSet ranks;
    Bytes message;
  };

  /// What the ranks of a set cost in a frame is bounded.
  static constexpr std::size_t kMaxRanges = 4096;

  /// Joins an equal message that waits, unless the rank would then overtake itself.
  void push(int rank, std::span<const std::byte> message);
  [[nodiscard]] bool empty() const noexcept { return entries_.empty(); }
  /// The oldest.
  [[nodiscard]] Entry pop();
  /// Of the messages that wait.
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

 private:
  struct Waiting {
    Entry entry;
    std::size_t hash;
  };

  [[nodiscard]] Waiting* find_equal(int rank, std::span<const std::byte> message, std::size_t hash);

  std::deque<Waiting> entries_;
  std::uint64_t first_ = 0;  // the number of the oldest entry; they are counted
  std::size_t bytes_ = 0;
  std::map<int, std::uint64_t> last_of_;             // by rank: its newest entry
  std::map<std::size_t, std::uint64_t> by_content_;  // by hash: the newest entry
};

}  // namespace hvd::net
