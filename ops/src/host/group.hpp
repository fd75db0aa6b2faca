// Represents some ranks of a host, as one of them sees them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <hvd/core/error.hpp>

#include "host/rows.hpp"
#include "host/segment.hpp"
#include "host/tensor_list.hpp"
#include "shm/wait.hpp"

namespace hvd::detail {

/// Holds what a rank knows of a member. The index of a member is its position in the group.
struct HostMember {
  Neighbour neighbour;
  const HostSegment* segment = nullptr;
  std::byte* block = nullptr;  ///< its HostControl and slots; null until their place is known
};

/// Returns the error that `rank` has no memory for its block of a process set.
[[nodiscard]] Error no_memory_for_set(int rank);

/// Holds vectors that keep their memory from one operation to the next.
struct HostWorkspace {
  TensorList list;
  std::vector<const std::byte*> from;
  std::vector<std::byte*> to;
  std::vector<const std::byte*> chunks;
  std::vector<std::uint64_t> given;
  HostRows<const std::byte> give;
  HostRows<std::byte> take;
};

/// The members take turns: in each of them every member publishes a message and reads those of all
/// others. Where an operation begins with a ready fence, the messages of the fence are those of its
/// first turn, which then costs no wait of its own. One thread at a time may call it.
class HostGroup {
 public:
  /// `self` is this rank's position. `name` is the set's name in HostSets, by which the blocks of
  /// members without a `block` are found; such a group begins with `attach` or with a fence.
  HostGroup(std::vector<HostMember> members, int self, ShmWait& wait, std::uint64_t name = 0);

  /// Waits until every member has made its block. Throws Errc::resource naming a member that has no
  /// memory for it.
  void attach(Deadline deadline);

  [[nodiscard]] int size() const noexcept { return static_cast<int>(members_.size()); }
  [[nodiscard]] int self() const noexcept { return self_; }
  /// Up to this many bytes every rank reads whole messages, which takes less time than a second
  /// turn.
  static constexpr std::size_t kSmall = std::size_t{4} << 10;
  [[nodiscard]] HostWorkspace& workspace() noexcept { return workspace_; }
  [[nodiscard]] const HostMember& member(int position) const noexcept {
    return members_[static_cast<std::size_t>(position)];
  }

  /// In a turn the caller writes at most `HostMessage::kLong` bytes to `outgoing`, calls `publish`,
  /// calls `await` for the others, reads their `incoming` bytes, and calls `end_turn`. `bytes` is
  /// the same on all members.
  [[nodiscard]] std::byte* outgoing(std::size_t bytes) noexcept;
  /// Tells whether this turn's messages came with the fence, so that none is to be written.
  [[nodiscard]] bool is_fenced() const noexcept { return fenced_; }
  /// Publishes this rank's message. Does nothing where this turn's messages came with the fence.
  void publish(std::uint64_t operation, std::uint64_t detail = 0) noexcept;
  /// Waits for the message of `position` and returns its `detail`. Throws Errc::protocol naming a
  /// member whose message is about another operation.
  std::uint64_t await(int position, std::uint64_t operation, Deadline deadline);
  [[nodiscard]] const std::byte* incoming(int position, std::size_t bytes) const noexcept {
    return message(position).room(bytes);
  }
  /// Returns the `detail` of a message that has arrived.
  [[nodiscard]] std::uint64_t detail(int position) const noexcept {
    return message(position).detail;
  }
  void end_turn() noexcept {
    ++turn_;
    published_ = false;
    fenced_ = false;
  }
  /// Takes a turn without contents. Returns when all members have published their messages.
  void barrier(std::uint64_t operation, Deadline deadline);

  /// Lets the fence of `sequence` (not 0) carry what was written to `outgoing`, and `detail`. No
  /// member reads them before this rank arrives at that fence.
  void prepare(std::uint64_t sequence, std::uint64_t detail) noexcept {
    prepared_ = {sequence, detail};
  }
  void drop_prepared() noexcept { prepared_ = {}; }
  /// For a ready fence the caller calls `arrive`, waits until every member `has_arrived`, and calls
  /// `pass_fence`. After a fence that is cancelled for all members it calls nothing: the turn of
  /// that fence has not begun, and the next message replaces the one of the fence. Sequence numbers
  /// grow.
  void arrive(std::uint64_t sequence, std::uint64_t digest) noexcept;
  /// Throws Errc::protocol naming a member that has arrived with another digest.
  [[nodiscard]] bool has_arrived(int position, std::uint64_t sequence, std::uint64_t digest);
  /// If something was prepared, the messages of the fence are those of the operation's first turn,
  /// which goes on. Otherwise that turn is over.
  void pass_fence() noexcept;

  /// Waits until `ready()` is true, which depends on values that `position` stores. For this rank's
  /// own position it must be true at once.
  template <class Ready>
  void wait_for(int position, Ready ready, Deadline deadline) {
    const std::size_t other = other_index_[static_cast<std::size_t>(position)];
    wait_.until(ready, {others_, others_.data() + other, deadline});
  }

  /// Returns the address of `bytes` at `offset` of a member's segment. Throws Errc::protocol naming
  /// the member unless they are in its arena.
  [[nodiscard]] std::byte* at(int position, std::uint64_t offset, std::size_t bytes) const;

  /// Chunks are numbered since the group began. Each operation takes the next ones, equally many on
  /// all ranks.
  [[nodiscard]] std::uint64_t next_chunk() const noexcept { return chunks_; }
  void take_chunks(std::uint64_t count) noexcept { chunks_ += count; }
  /// Tells whether all others are done with the earlier chunk in this rank's slot for `chunk`.
  /// `wait_free` waits until they are.
  [[nodiscard]] bool is_free(std::uint64_t chunk) noexcept;
  void wait_free(std::uint64_t chunk, Deadline deadline);
  /// Publishes the number of chunks, since the group began, that this rank has put into its slots,
  /// or is done with in the others' slots.
  void publish_copied(std::uint64_t chunks) noexcept;
  void publish_reduced(std::uint64_t chunks) noexcept;
  /// Remembers the number of copied chunks from a message of `position`. `wait_copied` then does
  /// not wait for these chunks.
  void note_copied(int position, std::uint64_t chunks) noexcept;
  void wait_copied(int position, std::uint64_t chunks, Deadline deadline);
  void wait_reduced(int position, std::uint64_t chunks, Deadline deadline);

  /// Wakes members that sleep while they wait for values that this rank has published. The caller
  /// calls it at the end of an operation, since this rank's next operation may be far off. During
  /// an operation a rank that waits wakes the others itself.
  void wake_others() noexcept;

  [[nodiscard]] std::byte* slot(int position, std::uint64_t chunk) const noexcept {
    return member(position).block + HostSlots::slot(chunk);
  }

 private:
  struct Prepared {
    std::uint64_t sequence = 0;  ///< 0: nothing
    std::uint64_t detail = 0;
  };

  /// Looks for the member's block, unless it is known. Returns whether it is known now.
  [[nodiscard]] bool attach(HostMember& member) const;
  [[nodiscard]] HostControl& control(int position) const noexcept;
  [[nodiscard]] HostMessage& message(int position) const noexcept {
    return control(position).messages[turn_ % 2];
  }
  void store(std::uint64_t number, std::uint64_t operation, std::uint64_t detail) noexcept;

  std::vector<HostMember> members_;
  std::vector<Neighbour> others_;         ///< all members but this rank
  std::vector<std::size_t> other_index_;  ///< index in `others_`, by position
  int self_;
  ShmWait& wait_;
  std::uint64_t name_;
  HostWorkspace workspace_;
  std::uint64_t turn_ = 1;
  bool published_ = false;  ///< others may have seen this rank's message of this turn
  bool fenced_ = false;     ///< the messages of this turn came with the fence
  Prepared prepared_;
  bool unheard_ = false;  ///< something was published since `wake_others`
  std::uint64_t chunks_ = 0;
  std::uint64_t free_ = HostSlots::kDepth;  ///< the slots of chunks before this one are free
  std::vector<std::uint64_t> copied_;       ///< by position: the number from note_copied
};

}  // namespace hvd::detail
