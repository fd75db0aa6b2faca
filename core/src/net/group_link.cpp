#include "net/group_link.hpp"

#include <utility>

#include <fcntl.h>

#include <hvd/core/error.hpp>

#include "net/tree_frame.hpp"

namespace hvd::net {
namespace {

UniqueFd duplicate(const UniqueFd& socket) {
  UniqueFd copy(::fcntl(socket.get(), F_DUPFD_CLOEXEC, 0));
  if (!copy) throw Error(Errc::resource, "no descriptor left for the control tree");
  return copy;
}

}  // namespace

GroupLink::GroupLink(EventLoop& loop, int peer, UniqueFd stream, std::size_t max_backlog)
    : loop_(loop),
      max_backlog_(max_backlog),
      room_(std::make_shared<RoomWatch>(loop, duplicate(stream))),
      link_(loop, peer, std::move(stream), max_backlog) {}

void GroupLink::start(TreeLink::Listener& listener) {
  listener_ = &listener;
  link_.start(*this);
}

void GroupLink::on_frame(TreeLink& link, std::span<const std::byte> payload) {
  listener_->on_frame(link, payload);
}

void GroupLink::on_end(TreeLink& link, const std::string& cause) {
  closed_ = true;
  room_->close();  // its descriptor would hold the stream open for the peer
  listener_->on_end(link, cause);
}

bool GroupLink::push(int rank, std::span<const std::byte> message) {
  if (closed_) return true;
  if (queue_.bytes() + message.size() > max_backlog_) return false;
  queue_.push(rank, message);
  if (std::exchange(due_, true)) return true;
  loop_.post([self = shared_from_this()] { self->flush(); });
  return true;
}

void GroupLink::flush() {
  due_ = false;
  if (closed_) return;
  while (!queue_.empty() && link_.backlog() == 0) send_oldest();
  if (queue_.empty()) return;
  due_ = true;
  room_->wait([self = shared_from_this()] { self->flush(); });
}

void GroupLink::send_oldest() {
  const MergeQueue::Entry entry = queue_.pop();
  link_.send(encode_group_frame(entry.ranks, entry.message));
}

void GroupLink::close() noexcept {
  if (std::exchange(closed_, true)) return;
  while (!queue_.empty()) send_oldest();
  link_.close();
  room_->close();
}

}  // namespace hvd::net
