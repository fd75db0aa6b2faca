#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>

#include <hvd/core/error.hpp>
#include <hvd/core/internal/control_channel.hpp>

#include "net/control_frame.hpp"
#include "net/control_router.hpp"
#include "net/frame_stream.hpp"
#include "net/tree_routes.hpp"

namespace hvd {
namespace {

using detail::TreeRoutes;
using net::FrameStream;
using net::RankSet;

/// Owns the streams of one rank with its neighbours. The router decides which message is written to
/// which stream.
class TreeChannel final : public ControlChannel,
                          private net::ControlRouter::Actions,
                          private FrameStream::Listener {
 public:
  TreeChannel(EventLoop& loop, PeerNetwork& network, int rank, const TreeRoutes& routes,
              Deadline deadline, std::size_t max_backlog)
      : loop_(loop),
        rank_(rank),
        routes_(routes),
        parent_(routes.parent(rank)),
        relays_(routes.is_relay(rank)),
        max_backlog_(max_backlog),
        router_(routes, rank, *this) {
    const auto connect = [&](int peer) {
      auto stream = std::make_shared<FrameStream>(loop, network.open(peer, "control", deadline),
                                                  net::FrameRules());
      peers_[stream.get()] = peer;
      streams_[peer] = std::move(stream);
    };
    if (rank != 0) connect(parent_);
    for (const int child : routes.children(rank)) connect(child);
  }
  ~TreeChannel() override {
    loop_.run_sync([this] { close(); });
  }

  void start(ControlChannel::Listener& listener) override {
    listener_ = &listener;
    for (const auto& [peer, stream] : streams_) stream->start(*this);
    flush();  // the stream to the parent may have had room before it had a listener
  }

  void send(std::span<const int> to, std::span<const std::byte> message) override {
    if (message.size() > kMaxControlMessage) {
      throw Error(Errc::invalid_argument,
                  fmt::format("a message of {} bytes exceeds the limit of {}", message.size(),
                              kMaxControlMessage));
    }
    router_.send(to, message);
  }

  [[nodiscard]] Clock::time_point host_answered(int peer) const override {
    const auto stream = streams_.find(peer);
    return stream == streams_.end() ? Clock::now() : stream->second->host_answered();
  }

  [[nodiscard]] bool delivered(Clock::duration silence) const override {
    return std::all_of(streams_.begin(), streams_.end(), [&](const auto& each) {
      return each.first == parent_ || each.second->delivered() ||
             Clock::now() - each.second->host_answered() > silence;
    });
  }

  void close() noexcept override {
    if (std::exchange(*closed_, true)) return;
    while (!to_root_.empty()) write_oldest();
    for (const auto& [peer, stream] : streams_) stream->close();
  }

 private:
  // These implement ControlRouter::Actions.
  void write(int neighbour, const RankSet& ranks, std::span<const std::byte> message) override {
    const bool to_root = neighbour == parent_ && !ranks.ranges().empty();
    if (to_root && relays_) return combine(ranks, message);
    write_frame(neighbour, ranks, message);
  }
  void deliver(const std::vector<int>& from, std::span<const std::byte> message) override {
    if (!*closed_) listener_->on_message(from, message);
  }

  // These implement FrameStream::Listener.
  void on_frame(FrameStream& stream, std::span<const std::byte> payload) override {
    const int peer = peers_.at(&stream);
    const int child = peer == parent_ ? rank_ : peer;
    const net::ControlFrame frame =
        net::decode_control_frame(payload, child, routes_.end_of(child));
    router_.receive(peer, frame.ranks, frame.message);
  }
  void on_end(FrameStream& stream, const std::string& cause) override {
    const int peer = peers_.at(&stream);
    streams_.erase(peer);
    listener_->on_lost(peer, cause);
  }
  void on_room(FrameStream& stream) override {
    if (peers_.at(&stream) == parent_) flush();
  }

  void write_frame(int neighbour, const RankSet& ranks, std::span<const std::byte> message) {
    const auto stream = streams_.find(neighbour);
    if (stream == streams_.end()) return;
    stream->second->send(net::encode_control_frame(ranks, message));
    const std::size_t unread = stream->second->backlog();
    if (unread > max_backlog_) {
      stream->second->end_later(fmt::format("{} bytes wait to be read", unread));
    }
  }

  /// A relay writes to rank 0 at the end of the loop's turn, or when the full stream to its parent
  /// has room again. Until then equal messages of its own and from below become one frame.
  void combine(const RankSet& senders, std::span<const std::byte> message) {
    const auto parent = streams_.find(parent_);
    if (*closed_ || parent == streams_.end()) return;
    if (to_root_.bytes() + message.size() > max_backlog_) {
      if (!senders.contains(rank_)) {
        throw Error(Errc::protocol, fmt::format("it sends more than rank {} reads", parent_));
      }
      return parent->second->end_later("it does not read what is sent to it");
    }
    to_root_.push(senders, message);
    if (std::exchange(flush_posted_, true)) return;
    loop_.post([this, closed = closed_] {
      if (*closed) return;
      flush_posted_ = false;
      flush();
    });
  }
  void flush() {
    while (!to_root_.empty() &&
           (streams_.count(parent_) == 0 || streams_.at(parent_)->backlog() == 0)) {
      write_oldest();
    }
  }
  void write_oldest() {
    const net::CombiningQueue::Entry oldest = to_root_.pop();
    write_frame(parent_, oldest.senders, oldest.message);
  }

  EventLoop& loop_;
  const int rank_;
  const TreeRoutes routes_;
  const int parent_;
  const bool relays_;
  const std::size_t max_backlog_;
  net::ControlRouter router_;
  std::map<int, std::shared_ptr<FrameStream>> streams_;  // by neighbour; without those that ended
  std::map<const FrameStream*, int> peers_;
  net::CombiningQueue to_root_;  // of a relay: the messages for rank 0
  bool flush_posted_ = false;
  ControlChannel::Listener* listener_ = nullptr;
  // Tasks that the loop may run after this object has been destroyed share it.
  const std::shared_ptr<bool> closed_ = std::make_shared<bool>(false);
};

}  // namespace

std::unique_ptr<ControlChannel> make_control_channel(EventLoop& loop, PeerNetwork& network,
                                                     int rank, int size, int fanout,
                                                     Deadline deadline, std::size_t max_backlog) {
  return std::make_unique<TreeChannel>(loop, network, rank, TreeRoutes(size, fanout), deadline,
                                       max_backlog);
}

}  // namespace hvd
