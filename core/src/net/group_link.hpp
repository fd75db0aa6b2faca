// The stream between rank 0 and a child, for all ranks of the child's group.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "net/merge_queue.hpp"
#include "net/room_watch.hpp"
#include "net/tree_link.hpp"

namespace hvd::net {

/// What is pushed in one turn of the loop leaves at its end, equal messages as one; while the
/// socket is full, what comes is merged with what waits. Loop thread, but for the constructor.
class GroupLink final : public std::enable_shared_from_this<GroupLink>, private TreeLink::Listener {
 public:
  /// `max_backlog` as of a `TreeLink`, and of what waits here.
  GroupLink(EventLoop& loop, int peer, UniqueFd stream, std::size_t max_backlog);

  void start(TreeLink::Listener& listener);
  /// `rank` says it, or it is said to. False, and dropped, when too much waits.
  [[nodiscard]] bool push(int rank, std::span<const std::byte> message);
  void give_up(const std::string& cause) { link_.give_up(cause); }
  /// Sends what waits as far as the socket takes it, then closes.
  void close() noexcept;
  [[nodiscard]] int peer() const noexcept { return link_.peer(); }

 private:
  void on_frame(TreeLink& link, std::span<const std::byte> payload) override;
  void on_end(TreeLink& link, const std::string& cause) override;
  void flush();
  void send_oldest();

  EventLoop& loop_;
  std::size_t max_backlog_;
  std::shared_ptr<RoomWatch> room_;
  TreeLink link_;
  TreeLink::Listener* listener_ = nullptr;
  MergeQueue queue_;
  bool due_ = false;  // a flush will come
  bool closed_ = false;
};

}  // namespace hvd::net
