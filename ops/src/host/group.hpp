// Some ranks of a host, as one of them sees them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "host/control.hpp"
#include "host/rows.hpp"
#include "host/tensor_list.hpp"
#include "host/waiting.hpp"

namespace hvd {

/// What a rank knows of a member; the member's position is its index.
struct HostMember {
  HostNeighbour neighbour;
  std::byte* segment = nullptr;  ///< as this process maps it
  std::size_t begin = 0;         ///< of its arena
  std::size_t size = 0;          ///< of the segment
  std::byte* block = nullptr;    ///< its HostControl and slots
};

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

/// Members take turns: in each of them everybody says something and hears everybody. One thread.
class HostGroup {
 public:
  /// `self`: this rank's position.
  HostGroup(std::vector<HostMember> members, int self, HostWaiting& waiting);

  [[nodiscard]] int size() const noexcept { return static_cast<int>(members_.size()); }
  [[nodiscard]] int self() const noexcept { return self_; }
  /// So many bytes, of all that is said, are sooner read by everybody than a second turn is over.
  static constexpr std::size_t kSmall = std::size_t{4} << 10;
  [[nodiscard]] HostWorkspace& workspace() noexcept { return workspace_; }
  [[nodiscard]] const HostMember& member(int position) const noexcept {
    return members_[static_cast<std::size_t>(position)];
  }

  /// What is said from here to the end of the turn is of something that may not come: only those
  /// who announced the same `ticket` (not 0) hear it, once they know that all have announced it.
  void announce(std::uint64_t ticket) noexcept { ticket_ = ticket; }
  /// It does not come, for nobody: the turn is as if nothing had been said.
  void retract() noexcept { ticket_ = 0; }
  /// A turn: write at most `HostMessage::kLong` bytes to `outbox`, `post` them, `hear` the others,
  /// read what they wrote, and `end_turn`. `bytes` is the same everywhere.
  [[nodiscard]] std::byte* outbox(std::size_t bytes) noexcept;
  void post(std::uint64_t what, std::uint64_t detail = 0) noexcept;
  /// Waits for what `position` says; returns its `detail`. A member that says something about
  /// another operation is Errc::protocol naming it.
  std::uint64_t hear(int position, std::uint64_t what, Deadline deadline);
  [[nodiscard]] const std::byte* heard(int position, std::size_t bytes) const noexcept {
    return message(position).room(bytes);
  }
  /// Again, of one that was heard.
  [[nodiscard]] std::uint64_t detail(int position) const noexcept {
    return message(position).detail;
  }
  void end_turn() noexcept {
    ++turn_;
    ticket_ = 0;
  }
  /// A turn without words: returns when all have come.
  void meet(std::uint64_t what, Deadline deadline);

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
  void tell_copied(std::uint64_t chunks) noexcept;
  void tell_reduced(std::uint64_t chunks) noexcept;
  /// `position` said so in a turn: need not be waited for.
  void note_copied(int position, std::uint64_t chunks) noexcept;
  void wait_copied(int position, std::uint64_t chunks, Deadline deadline);
  void wait_reduced(int position, std::uint64_t chunks, Deadline deadline);

  /// At the end of an operation: who came first may sleep by now, and this rank be gone for long.
  /// Before that, whoever waits here wakes the others.
  void end_operation() noexcept;

  [[nodiscard]] std::byte* slot(int position, std::uint64_t chunk) const noexcept {
    return member(position).block + HostSlots::slot(chunk);
  }

 private:
  [[nodiscard]] HostControl& control(int position) const noexcept;
  [[nodiscard]] HostMessage& message(int position) const noexcept {
    return control(position).messages[turn_ % 2];
  }
  /// Of this turn's messages: announcements that were retracted have another.
  [[nodiscard]] std::uint64_t tag() const noexcept { return 2 * turn_ + (ticket_ != 0 ? 1 : 0); }
  [[nodiscard]] HostWaiting::For waiting_for(int position, Deadline deadline) const noexcept;

  std::vector<HostMember> members_;
  std::vector<HostNeighbour> others_;     ///< but this rank
  std::vector<std::size_t> other_index_;  ///< by position
  int self_;
  HostWaiting& waiting_;
  HostWorkspace workspace_;
  std::uint64_t turn_ = 1;
  std::uint64_t ticket_ = 0;  ///< of what is announced for this turn; 0: nothing
  std::uint64_t chunks_ = 0;
  std::uint64_t free_ = HostSlots::kDepth;  ///< slots of chunks below are known to be free
  std::vector<std::uint64_t> copied_;       ///< by position: chunks known to be in
  bool unheard_ = false;  ///< something was said, and nobody has been woken for it
};

}  // namespace hvd
