// Connects ranks that are threads of one process: the receiver reads straight from the sender's
// memory.
#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <mutex>

#include <fmt/format.h>

#include <hvd/ops/internal/transport.hpp>

#include "transport/failure.hpp"

namespace hvd {

using namespace detail;

namespace {

/// Holds one message from one rank to another. The sender posts it and takes it back; in between
/// the receiver marks it while it reads, so that a sender that gives up does not free memory in
/// use.
struct Mailbox {
  enum class State { empty, posted, reading, consumed };
  State state = State::empty;
  std::span<const std::byte> bytes;
};

struct Hub {
  explicit Hub(int ranks)
      : size(ranks),
        boxes(static_cast<std::size_t>(ranks) * static_cast<std::size_t>(ranks)),
        gone(static_cast<std::size_t>(ranks), false) {}

  Mailbox& box(int from, int to) { return boxes[static_cast<std::size_t>(from * size + to)]; }

  int size;
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Mailbox> boxes;
  std::vector<bool> gone;
};

class InProcessTransport final : public Transport {
 public:
  InProcessTransport(std::shared_ptr<Hub> hub, int rank) : hub_(std::move(hub)), rank_(rank) {}

  ~InProcessTransport() override {
    const std::lock_guard lock(hub_->mutex);
    hub_->gone[static_cast<std::size_t>(rank_)] = true;
    hub_->changed.notify_all();
  }

  [[nodiscard]] std::string_view name() const noexcept override { return "in_process"; }
  [[nodiscard]] int rank() const noexcept override { return rank_; }
  [[nodiscard]] int size() const noexcept override { return hub_->size; }

  void exchange(const Outgoing& out, const Incoming& in, Deadline deadline) override {
    failure_.guard([&] {
      const bool sends = out.peer >= 0 && !out.bytes.empty();
      const bool receives = in.peer >= 0 && in.size > 0;
      std::unique_lock lock(hub_->mutex);
      if (sends) post(out);
      try {
        if (receives) receive(lock, in, deadline);
        if (sends) {
          await(lock, out.peer, hub_->box(rank_, out.peer), Mailbox::State::consumed, deadline);
        }
      } catch (...) {
        if (sends) take_back(lock, out.peer);
        throw;
      }
      if (sends) hub_->box(rank_, out.peer).state = Mailbox::State::empty;
    });
  }

  void abort() noexcept override {
    failure_.abort();
    const std::lock_guard lock(hub_->mutex);
    hub_->changed.notify_all();
  }

 private:
  using Lock = std::unique_lock<std::mutex>;

  void post(const Outgoing& out) {
    hub_->box(rank_, out.peer) = {Mailbox::State::posted, out.bytes};
    hub_->changed.notify_all();
  }

  void take_back(Lock& lock, int peer) {
    Mailbox& box = hub_->box(rank_, peer);
    // This ends soon, because a reader does nothing but copy.
    hub_->changed.wait(lock, [&] { return box.state != Mailbox::State::reading; });
    box.state = Mailbox::State::empty;
  }

  void receive(Lock& lock, const Incoming& in, Deadline deadline) {
    Mailbox& box = hub_->box(in.peer, rank_);
    await(lock, in.peer, box, Mailbox::State::posted, deadline);
    if (box.bytes.size() != in.size) {
      throw peer_violation(
          in.peer, fmt::format("sent {} bytes where {} were expected", box.bytes.size(), in.size));
    }
    box.state = Mailbox::State::reading;
    lock.unlock();
    try {
      consume(in, box.bytes);
    } catch (...) {
      lock.lock();
      leave(box, Mailbox::State::posted);
      throw;
    }
    lock.lock();
    leave(box, Mailbox::State::consumed);
  }

  void leave(Mailbox& box, Mailbox::State state) {
    box.state = state;
    hub_->changed.notify_all();
  }

  static void consume(const Incoming& in, std::span<const std::byte> bytes) {
    if (in.into != nullptr) {
      std::memcpy(in.into, bytes.data(), bytes.size());
      return;
    }
    // The sink gets the bytes in pieces, as from the other transports.
    const std::size_t piece =
        std::max<std::size_t>(1, (std::size_t{64} << 10) / in.granularity) * in.granularity;
    for (std::size_t offset = 0; offset < bytes.size(); offset += piece) {
      in.sink(offset, bytes.subspan(offset, std::min(piece, bytes.size() - offset)));
    }
  }

  void await(Lock& lock, int peer, const Mailbox& box, Mailbox::State wanted, Deadline deadline) {
    const auto over = [&] {
      return box.state == wanted || failure_.aborted() ||
             (hub_->gone[static_cast<std::size_t>(peer)] && box.state != Mailbox::State::reading);
    };
    const bool in_time = hub_->changed.wait_until(lock, deadline, over);
    if (box.state == wanted) return;
    failure_.check();
    if (!in_time) throw peer_timeout(peer, "no answer before the deadline");
    throw peer_lost(peer, "its transport was closed");
  }

  std::shared_ptr<Hub> hub_;
  int rank_;
  Failure failure_;
};

}  // namespace

std::vector<std::unique_ptr<Transport>> make_in_process_transports(int size) {
  const auto hub = std::make_shared<Hub>(size);
  std::vector<std::unique_ptr<Transport>> transports;
  for (int rank = 0; rank < size; ++rank) {
    transports.push_back(std::make_unique<InProcessTransport>(hub, rank));
  }
  return transports;
}

}  // namespace hvd
