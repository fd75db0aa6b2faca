// Declares the messages between hvdrun and a worker of an elastic job.
// docs/internals/elastic_worker.md describes the protocol.
//
// Each message is one packet on the Unix SEQPACKET socket whose descriptor hvdrun gives to the
// worker in HVD_ELASTIC_FD. The socket of a worker exists as long as its process, and orders the
// messages: a `Change` that follows an `Assignment` is about that generation, and one that precedes
// it is about an earlier generation and means nothing any more.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include <hvd/core/types.hpp>

namespace hvd::detail {

/// From a worker to hvdrun: the worker has no context and wants to be part of the next generation,
/// or to leave. A worker sends it once for each generation that it was assigned to, also when the
/// context of that generation could not be made, and once before the first. It sends it again, with
/// `leaves`, when it is asked to leave while it waits. hvdrun ignores one whose generation is older
/// than the last that it has assigned to the worker, since the two have crossed.
struct Waits {
  std::uint32_t generation = 0;  ///< the last one that this worker was assigned to; 0: none
  /// The rank of that generation which the worker's error blames. -1: none. The generation has then
  /// ended at a step on which all agreed, or with an error that blames no other rank.
  std::int32_t blames = -1;
  bool blamed_left = false;  ///< that rank has left, so its process ends; otherwise it is silent
  bool leaves = false;       ///< the worker was asked to leave and expects `Leave`
  /// That generation ended before this worker had the state of the training: its context could not
  /// be made, or the state was not synchronized. So no rank has completed a step in it.
  bool start_failed = false;

  bool operator==(const Waits&) const = default;
};

/// From hvdrun to a worker that waits: the worker is a member of a new generation.
struct Assignment {
  std::uint32_t generation = 0;  ///< from 1, and larger than that of any earlier assignment
  /// Variables of the environment contract as "NAME=value", which take precedence over the worker's
  /// environment. Each NAME is there once. HVD_RANK, HVD_SIZE, HVD_JOB_ID and HVD_STORE are among
  /// them, and HVD_RESTART_COUNT, which is the generation.
  std::vector<std::string> variables;

  bool operator==(const Assignment&) const = default;
};

/// From hvdrun to a member: the generation is to end. Members that train agree on a step, end the
/// generation there, and wait for the next. A member whose context still starts gives that up at
/// once and waits, with no blame. hvdrun therefore sends it also to all members that have not said
/// `Waits` when another member's process ends or says `Waits`: where ranks meet, in the store and
/// when they connect, they do not notice otherwise that one of them never comes. A member that
/// trains notices the loss itself, and a second `Change` has no effect.
struct Change {
  bool operator==(const Change&) const = default;
};

/// From hvdrun to a worker that waits: the worker is not part of the next generation. Its process
/// ends with exit code 0.
struct Leave {
  bool operator==(const Leave&) const = default;
};

/// From hvdrun to a member, before hvdrun passes on SIGTERM or SIGUSR1: the signal comes to all
/// members. Those that ask `stop_requested` stop together instead of leaving each by itself.
struct Stop {
  bool operator==(const Stop&) const = default;
};

using ElasticOrder = std::variant<Assignment, Change, Leave, Stop>;

/// The largest encoded message of either direction. A receiver whose buffer is one byte longer
/// recognises packets that are too long.
inline constexpr std::size_t kMaxElasticMessage = 16'384;
/// The most variables of an assignment, and the most bytes of one of them.
inline constexpr std::size_t kMaxElasticVariables = 64;
inline constexpr std::size_t kMaxElasticVariable = 1'024;

/// Returns at most `kMaxElasticMessage` bytes. Throws Errc::invalid_argument where the decoder
/// would refuse the result.
[[nodiscard]] Bytes encode(const Waits& waits);
[[nodiscard]] Bytes encode(const ElasticOrder& order);

/// Read what `encode` returns. Throw Errc::protocol.
[[nodiscard]] Waits decode_waits(std::span<const std::byte> bytes);
[[nodiscard]] ElasticOrder decode_elastic_order(std::span<const std::byte> bytes);

}  // namespace hvd::detail
