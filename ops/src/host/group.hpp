// Some ranks of a host, as one of them sees them.
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

namespace hvd {

/// What a rank knows of a member; the member's position is its index.
struct HostMember {
  Neighbour neighbour;
  std::byte* segment = nullptr;    ///< as this process maps it
  std::size_t begin = 0;           ///< of its arena
  std::size_t size = 0;            ///< of the segment
  const HostSets* sets = nullptr;  ///< where it publishes its blocks
  std::byte* block = nullptr;      ///< its HostControl and slots; null until it is known where
};

/// `rank` could not make its block for a process set.
[[nodiscard]] Error no_memory_for_set(int rank);

/// Vectors that keep their memory from one operation to the next.
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
/// first turn, which then costs no wait of its own. One thread at a time.
class HostGroup {
 public:
  /// `self`: this rank's position. `name` is that of the set, for members whose blocks are not
  /// known yet: `attach`, or wait at a fence, before anything else.
  HostGroup(std::vector<HostMember> members, int self, ShmWait& wait, std::uint64_t name = 0);

  /// Waits until every member has made its block. Throws Errc::resource naming a member that has no
  /// memory for it.
  void attach(Deadline deadline);

  [[nodiscard]] int size() const noexcept { return static_cast<int>(members_.size()); }
  [[nodiscard]] int self() const noexcept { return self_; }
  /// So many bytes, of all that is published, are sooner read by everybody than a second turn is
  /// over.
  static constexpr std::size_t kSmall = std::size_t{4} << 10;
  [[nodiscard]] HostWorkspace& workspace() noexcept { return workspace_; }
  [[nodiscard]] const HostMember& member(int position) const noexcept {
    return members_[static_cast<std::size_t>(position)];
  }

  /// A turn: write at most `HostMessage::kLong` bytes to `outgoing`, `publish` them, `await` the
  /// others, read what is `incoming`, and `end_turn`. `bytes` is the same everywhere.
  [[nodiscard]] std::byte* outgoing(std::size_t bytes) noexcept;
  /// Does nothing where this turn's messages came with the fence.
  void publish(std::uint64_t operation, std::uint64_t detail = 0) noexcept;
  /// Waits for the message of `position`; returns its `detail`. A member whose message is about
  /// another operation is Errc::protocol naming it.
  std::uint64_t await(int position, std::uint64_t operation, Deadline deadline);
  [[nodiscard]] const std::byte* incoming(int position, std::size_t bytes) const noexcept {
    return message(position).room(bytes);
  }
  /// Again, of one that has come.
  [[nodiscard]] std::uint64_t detail(int position) const noexcept {
    return message(position).detail;
  }
  void end_turn() noexcept {
    ++turn_;
    published_ = false;
    fenced_ = false;
  }
  /// A turn without contents: returns when all have come.
  void barrier(std::uint64_t operation, Deadline deadline);

  /// What was written to `outgoing`, and `detail`, go with the fence of `sequence` (not 0), should
  /// it come. Neither is seen by anybody before.
  void prepare(std::uint64_t sequence, std::uint64_t detail) noexcept {
    prepared_ = {sequence, detail};
  }
  void drop_prepared() noexcept { prepared_ = {}; }
  /// The fence of `sequence`: `arrive`, wait until every member `has_arrived`, and `pass_fence`;
  /// or, where it is cancelled for all members, nothing more: the turn has not begun. Sequence
  /// numbers grow.
  void arrive(std::uint64_t sequence, std::uint64_t digest) noexcept;
  /// Throws Errc::protocol naming a member that has arrived with another digest.
  [[nodiscard]] bool has_arrived(int position, std::uint64_t sequence, std::uint64_t digest);
  /// With what was prepared the fence's messages are those of the current turn; without, the turn
  /// is over.
  void pass_fence() noexcept;

  /// Waits until `ready()` of what `position` stores.
  template <class Ready>
  void wait_for(int position, Ready ready, Deadline deadline) {
    wait_.until(ready,
                {others_, &others_[other_index_[static_cast<std::size_t>(position)]], deadline});
  }

  /// `bytes` at `offset` of a member's segment. Throws Errc::protocol naming it unless they are in
  /// its arena.
  [[nodiscard]] std::byte* at(int position, std::uint64_t offset, std::size_t bytes) const;

  /// Chunks are numbered since the group began: each operation takes some, as many on all ranks.
  [[nodiscard]] std::uint64_t next_chunk() const noexcept { return chunks_; }
  void take_chunks(std::uint64_t count) noexcept { chunks_ += count; }
  /// Nobody needs any more what was in this rank's slot for a chunk; or waits until that is so.
  [[nodiscard]] bool is_free(std::uint64_t chunk) noexcept;
  void wait_free(std::uint64_t chunk, Deadline deadline);
  /// This rank has put so many chunks into its slots, or taken so many out of the others'.
  void publish_copied(std::uint64_t chunks) noexcept;
  void publish_reduced(std::uint64_t chunks) noexcept;
  /// A message of `position` has said so: it need not be waited for.
  void note_copied(int position, std::uint64_t chunks) noexcept;
  void wait_copied(int position, std::uint64_t chunks, Deadline deadline);
  void wait_reduced(int position, std::uint64_t chunks, Deadline deadline);

  /// Wakes members that sleep waiting for what this rank has published. To be called at the end of
  /// an operation, since this rank may not come back for long; before that, whoever waits here
  /// wakes the others.
  void wake_others() noexcept;

  [[nodiscard]] std::byte* slot(int position, std::uint64_t chunk) const noexcept {
    return member(position).block + HostSlots::slot(chunk);
  }

 private:
  struct Prepared {
    std::uint64_t sequence = 0;  ///< 0: nothing
    std::uint64_t detail = 0;
  };

  /// Whether the member's block is known.
  [[nodiscard]] bool attach(HostMember& member) const;
  [[nodiscard]] HostControl& control(int position) const noexcept;
  [[nodiscard]] HostMessage& message(int position) const noexcept {
    return control(position).messages[turn_ % 2];
  }
  void store(std::uint64_t number, std::uint64_t operation, std::uint64_t detail) noexcept;

  std::vector<HostMember> members_;
  std::vector<Neighbour> others_;         ///< but this rank
  std::vector<std::size_t> other_index_;  ///< by position
  int self_;
  ShmWait& wait_;
  std::uint64_t name_;
  HostWorkspace workspace_;
  std::uint64_t turn_ = 1;
  bool published_ = false;  ///< this rank's message of this turn has been seen by others
  bool fenced_ = false;     ///< the messages of this turn came with the fence
  Prepared prepared_;
  bool unheard_ = false;  ///< something was published since `wake_others`
  std::uint64_t chunks_ = 0;
  std::uint64_t free_ = HostSlots::kDepth;  ///< the slots of chunks before this one are free
  std::vector<std::uint64_t> copied_;       ///< by position: said in turns
};

}  // namespace hvd
