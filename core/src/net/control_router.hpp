// Routes messages between rank 0 and the other ranks through the control tree. It does no I/O: the
// caller owns the streams.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <vector>

#include <hvd/core/internal/wire.hpp>

#include "net/control_frame.hpp"
#include "net/tree_routes.hpp"

namespace hvd::net {

/// Routes the messages of one rank, and of a relay also those that pass through it.
///
/// A message on a stream carries a set of ranks. On its way from rank 0 these are the ranks that it
/// is for, and on its way to rank 0 those that sent it. The set is empty when a relay and a
/// neighbour other than rank 0 write to each other.
class ControlRouter {
 public:
  /// The router calls it from inside its methods.
  class Actions {
   public:
    virtual ~Actions() = default;
    /// Writes `ranks` and `message` to the stream with `neighbour`.
    virtual void write(int neighbour, const RankSet& ranks, std::span<const std::byte> message) = 0;
    /// Delivers a message for this rank that each of these ranks has sent.
    virtual void deliver(const std::vector<int>& from, std::span<const std::byte> message) = 0;
  };

  ControlRouter(const detail::TreeRoutes& routes, int rank, Actions& actions)
      : routes_(routes), rank_(rank), actions_(actions) {}

  /// Throws Errc::invalid_argument unless a route leads to every rank of `to`.
  void send(std::span<const int> to, std::span<const std::byte> message);
  /// Handles a message that `neighbour` has written. All of `ranks` are below the stream with it.
  /// Throws Errc::protocol when the set is empty though rank 0 is at one end.
  void receive(int neighbour, const RankSet& ranks, std::span<const std::byte> message);

 private:
  [[nodiscard]] bool reaches(int rank) const;
  void write_down(std::span<const int> to, std::span<const std::byte> message);

  const detail::TreeRoutes routes_;
  const int rank_;
  Actions& actions_;
};

/// Holds the messages to rank 0 that wait in a relay for the stream to its parent, oldest first,
/// each with the ranks that sent it. Equal messages of several ranks are combined.
class CombiningQueue {
 public:
  struct Entry {
    RankSet senders;
    Bytes message;
  };

  /// Adds the senders to an equal entry if the message then overtakes no other message of theirs.
  /// Otherwise the message becomes the last entry.
  void push(const RankSet& senders, std::span<const std::byte> message);
  [[nodiscard]] bool empty() const noexcept { return entries_.empty(); }
  /// Removes the oldest entry.
  [[nodiscard]] Entry pop();
  /// Returns the size in bytes of all messages that wait.
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

 private:
  std::deque<Entry> entries_;
  std::uint64_t popped_ = 0;             // entries are counted; this is the number of the oldest
  std::map<int, std::uint64_t> behind_;  // by sender: one more than the number of its newest entry
  std::size_t bytes_ = 0;
};

}  // namespace hvd::net
