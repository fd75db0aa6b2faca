#include <string>
#include <vector>

#include <fmt/format.h>

#include <hvd/core/control_channel.hpp>
#include <hvd/core/error.hpp>

#include "net/frame_stream.hpp"

namespace hvd {
namespace {

constexpr std::string_view kLabel = "control";

/// One peer's stream, translated into calls with its rank.
class Spoke final : private net::FrameStream::Listener {
 public:
  Spoke(EventLoop& loop, int peer, UniqueFd stream)
      : peer_(peer),
        stream_(std::make_shared<net::FrameStream>(loop, std::move(stream), net::FrameRules())) {}

  void start(ControlChannel::Listener& listener) {
    listener_ = &listener;
    stream_->start(*this);
  }
  void send(std::span<const std::byte> message) { stream_->send(message); }
  void close() noexcept { stream_->close(); }
  [[nodiscard]] int peer() const noexcept { return peer_; }

 private:
  void on_frame(net::FrameStream&, std::span<const std::byte> payload) override {
    listener_->on_message(peer_, payload);
  }
  void on_end(net::FrameStream&, const std::string& cause) override {
    listener_->on_lost(peer_, cause);
  }

  int peer_;
  std::shared_ptr<net::FrameStream> stream_;
  ControlChannel::Listener* listener_ = nullptr;
};

class StarChannel final : public ControlChannel {
 public:
  StarChannel(EventLoop& loop, std::vector<std::unique_ptr<Spoke>> spokes)
      : loop_(loop), spokes_(std::move(spokes)) {}
  ~StarChannel() override {
    loop_.run_sync([this] { close(); });
  }

  void start(Listener& listener) override {
    for (const auto& spoke : spokes_) spoke->start(listener);
  }

  void send(int to, Bytes message) override {
    // Rank 0 holds a spoke to each of 1, 2, …; the others hold the one to rank 0.
    const std::size_t index = to > 0 ? static_cast<std::size_t>(to) - 1 : 0;
    if (index >= spokes_.size() || spokes_[index]->peer() != to) {
      throw Error(Errc::invalid_argument, fmt::format("no control stream leads to rank {}", to));
    }
    spokes_[index]->send(message);
  }

  void close() noexcept override {
    for (const auto& spoke : spokes_) spoke->close();
  }

 private:
  EventLoop& loop_;
  std::vector<std::unique_ptr<Spoke>> spokes_;
};

}  // namespace

std::unique_ptr<ControlChannel> make_star_channel(EventLoop& loop, PeerNetwork& network, int rank,
                                                  int size, Deadline deadline) {
  std::vector<std::unique_ptr<Spoke>> spokes;
  const auto connect = [&](int peer) {
    spokes.push_back(std::make_unique<Spoke>(loop, peer, network.open(peer, kLabel, deadline)));
  };
  if (rank == 0) {
    for (int peer = 1; peer < size; ++peer) connect(peer);
  } else {
    connect(0);
  }
  return std::make_unique<StarChannel>(loop, std::move(spokes));
}

}  // namespace hvd
