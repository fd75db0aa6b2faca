// Declares a frame on a stream of the control channel. It holds a message and the ranks that the
// message is from or for. docs/internals/protocol.md shows the encoding.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <hvd/core/internal/control_channel.hpp>
#include <hvd/core/internal/wire.hpp>

#include "net/frame.hpp"

namespace hvd::net {

/// Holds a set of ranks, as ascending ranges with gaps between them.
class RankSet {
 public:
  struct Range {
    int first = 0;
    int end = 0;  ///< one more than the last rank

    friend bool operator==(const Range&, const Range&) = default;
  };

  RankSet() = default;
  explicit RankSet(int rank) : ranges_{{rank, rank + 1}} {}

  void insert(int rank);
  [[nodiscard]] bool contains(int rank) const noexcept;
  [[nodiscard]] const std::vector<Range>& ranges() const noexcept { return ranges_; }
  [[nodiscard]] std::vector<int> ranks() const;  ///< ascending

  void write(WireWriter& out) const;
  /// Reads a set in the one encoding that `write` gives it. Throws Errc::protocol unless all of its
  /// ranks are at least `first` and less than `end`.
  [[nodiscard]] static RankSet read(WireReader& in, int first, int end);

  friend bool operator==(const RankSet&, const RankSet&) = default;

 private:
  std::vector<Range> ranges_;
};

// Besides the largest message, the largest frame has room for a set of ranks.
static_assert(kMaxControlMessage < kMaxFrame);

struct ControlFrame {
  RankSet ranks;
  std::span<const std::byte> message;
};
[[nodiscard]] Bytes encode_control_frame(const RankSet& ranks, std::span<const std::byte> message);
/// Decodes a frame whose message refers to `bytes`. Throws Errc::protocol, also unless all ranks
/// are at least `first` and less than `end`.
[[nodiscard]] ControlFrame decode_control_frame(std::span<const std::byte> bytes, int first,
                                                int end);

}  // namespace hvd::net
