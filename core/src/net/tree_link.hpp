// One stream of a control tree, to a neighbour.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include <hvd/core/event_loop.hpp>
#include <hvd/core/fd.hpp>

#include "net/frame_stream.hpp"

namespace hvd::net {

/// Loop thread, but for the constructor.
class TreeLink final : private FrameStream::Listener {
 public:
  class Listener {
   public:
    virtual ~Listener() = default;
    /// As `FrameStream::Listener::on_frame`.
    virtual void on_frame(TreeLink& link, std::span<const std::byte> payload) = 0;
    /// Once.
    virtual void on_end(TreeLink& link, const std::string& cause) = 0;
  };

  /// `max_backlog`: bytes that the neighbour may leave unread before it is given up.
  TreeLink(EventLoop& loop, int peer, UniqueFd stream, std::size_t max_backlog);

  void start(Listener& listener);
  /// At once. Too much that is not read ends the link.
  void send(std::span<const std::byte> payload);
  void give_up(const std::string& cause) { stream_->end_later(cause); }
  void close() noexcept { stream_->close(); }
  [[nodiscard]] int peer() const noexcept { return peer_; }
  /// Bytes that the socket has not taken.
  [[nodiscard]] std::size_t backlog() const noexcept { return stream_->backlog(); }

 private:
  void on_frame(FrameStream& stream, std::span<const std::byte> payload) override;
  void on_end(FrameStream& stream, const std::string& cause) override;

  int peer_;
  std::size_t max_backlog_;
  std::shared_ptr<FrameStream> stream_;
  Listener* listener_ = nullptr;
};

}  // namespace hvd::net
