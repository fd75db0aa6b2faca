// What a rank answers when its launcher asks how it goes. `hvdrun --status` and `hvdrun status`
// show it; docs/hvdrun.md has the way it takes.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <hvd/core/types.hpp>
#include <hvd/core/wire.hpp>

namespace hvd {

struct RankReport {
  /// An operation that this rank has submitted and that is not complete.
  struct Pending {
    std::string name;  ///< its first `kMaxName` bytes; any bytes
    OpKind kind = OpKind::allreduce;
    bool scheduled = false;  ///< agreed: it runs, or will without anybody's further doing
    std::chrono::milliseconds age{0};
    std::int32_t process_set = 0;
    /// The ranks of the process set, at most `kMaxMembers`; empty: all ranks, or too many to tell.
    std::vector<std::int32_t> members;
  };

  static constexpr std::size_t kMaxPending = 8;
  static constexpr std::size_t kMaxName = 200;
  static constexpr std::size_t kMaxMembers = 32;
  /// Of the encoded form.
  static constexpr std::size_t kMaxBytes = 8192;

  std::int32_t rank = 0;
  std::int32_t size = 1;
  std::uint64_t steps = 0;              ///< since the context began
  std::chrono::nanoseconds step{0};     ///< mean of the last steps
  std::chrono::nanoseconds exposed{0};  ///< of that, blocked on communication
  std::uint64_t operations = 0;         ///< completed
  std::uint64_t bytes = 0;              ///< that collectives carried
  std::uint32_t pending = 0;            ///< how many operations are not complete
  std::vector<Pending> oldest;          ///< the first of them, in the order of submission
};

/// What a rank says without being asked, a packet of one byte each: what has joined and has not
/// ended when the process exits has deserted the others.
enum class RankNote : std::uint8_t {
  joined = 'j',  ///< a context has joined its job
  ended = 'e',   ///< it has come to its end, by a shutdown of all ranks or by an error
};

/// At most `kMaxBytes`: what exceeds the bounds above is left out.
[[nodiscard]] Bytes encode(const RankReport& report);
/// The other way round. Throws Errc::protocol.
[[nodiscard]] RankReport decode_rank_report(std::span<const std::byte> bytes);

}  // namespace hvd
