#include "net/tree_link.hpp"

#include <utility>

#include <fmt/format.h>

namespace hvd::net {

TreeLink::TreeLink(EventLoop& loop, int peer, UniqueFd stream, std::size_t max_backlog)
    : peer_(peer),
      max_backlog_(max_backlog),
      stream_(std::make_shared<FrameStream>(loop, std::move(stream), FrameRules())) {}

void TreeLink::start(Listener& listener) {
  listener_ = &listener;
  stream_->start(*this);
}

void TreeLink::send(std::span<const std::byte> payload) {
  stream_->send(payload);
  if (backlog() > max_backlog_) give_up(fmt::format("{} bytes wait to be read", backlog()));
}

void TreeLink::on_frame(FrameStream&, std::span<const std::byte> payload) {
  listener_->on_frame(*this, payload);
}

void TreeLink::on_end(FrameStream&, const std::string& cause) { listener_->on_end(*this, cause); }

}  // namespace hvd::net
