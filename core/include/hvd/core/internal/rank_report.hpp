// Holds the state of a rank, which the rank reports when its launcher asks. `hvdrun --status` and
// `hvdrun status` show it; docs/reference/hvdrun.md describes how.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <hvd/core/internal/wire.hpp>
#include <hvd/core/types.hpp>

namespace hvd {

struct RankReport {
  /// Describes an operation that this rank has submitted and that is not complete.
  struct Pending {
    std::string name;  ///< its first `kMaxName` bytes, which may be any bytes
    OpKind kind = OpKind::allreduce;
    bool scheduled = false;  ///< all ranks have submitted it, so that it runs or will run
    std::chrono::milliseconds age{0};
    std::int32_t process_set = 0;
    /// The ranks of the process set, at most `kMaxMembers`; empty for all ranks, or for more.
    std::vector<std::int32_t> members;
  };

  static constexpr std::size_t kMaxPending = 8;
  static constexpr std::size_t kMaxName = 200;
  static constexpr std::size_t kMaxMembers = 32;
  /// The largest encoded form.
  static constexpr std::size_t kMaxBytes = 8192;

  std::int32_t rank = 0;
  std::int32_t size = 1;
  std::uint64_t steps = 0;              ///< since the context began
  std::chrono::nanoseconds step{0};     ///< mean of the last steps
  std::chrono::nanoseconds exposed{0};  ///< the part of `step` blocked on communication
  std::int32_t slowest = -1;            ///< the slowest rank of the job; -1: none stands out
  std::chrono::nanoseconds slowest_cost{
      0};                        ///< the part of a step for which the others wait for it
  std::uint64_t operations = 0;  ///< completed
  std::uint64_t bytes = 0;       ///< carried by collectives
  std::uint32_t pending = 0;     ///< the number of operations that are not complete
  std::vector<Pending> oldest;   ///< the first ones of these, in the order of submission
};

/// A rank sends a note without being asked. A process that exits after `joined` and before `ended`
/// has left the others without a shutdown.
struct RankNote {
  enum class Kind : std::uint8_t {
    joined = 'j',  ///< a context has joined its job
    ended = 'e',   ///< the context has ended, by a shutdown of all ranks or by an error
    stops = 's',   ///< the ranks have agreed to stop, since one of them was asked to
  };
  static constexpr std::size_t kBytes = 6;  ///< of the encoded form; no report is so short

  Kind kind = Kind::joined;
  std::int32_t blames = -1;  ///< `ended`: the other rank that the error blames; -1: none
  bool blamed_left = false;  ///< that rank has left the job; otherwise it may still run
};

/// Returns at most `kMaxBytes` bytes. What exceeds the bounds above is left out.
[[nodiscard]] Bytes encode(const RankReport& report);
/// Reads what `encode` returns. Throws Errc::protocol.
[[nodiscard]] RankReport decode_rank_report(std::span<const std::byte> bytes);

/// Returns `RankNote::kBytes` bytes.
[[nodiscard]] Bytes encode(const RankNote& note);
/// Returns nothing when the bytes are not those of a note.
[[nodiscard]] std::optional<RankNote> decode_rank_note(std::span<const std::byte> bytes);

}  // namespace hvd
