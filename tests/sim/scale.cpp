#include "scale.hpp"

#include <algorithm>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "event_queue.hpp"
#include "net/control_frame.hpp"
#include "net/control_router.hpp"
#include "net/tree_routes.hpp"
#include "policy/protocol.hpp"
#include "policy/replay.hpp"
#include "resnet50.hpp"
#include "trace.hpp"

namespace hvd::sim {
namespace {

using namespace detail;  // NOLINT: a test

constexpr int kFrozenSteps = 10;
// The plans of all ranks of a large job do not fit into memory. So this many ranks replay it, and
// the others check only that it is the same.
constexpr int kReplayed = 1024;
constexpr int kTicksPerSecond = 10;

/// A frame on a stream.
struct Letter {
  int from;
  int to;
  net::RankSet ranks;
  Bytes bytes;
};

/// Streams without delay, with the product's routers and combining queues.
class Post {
 public:
  using Receive =
      std::function<void(const std::vector<int>& from, int to, std::span<const std::byte> message)>;

  Post(const TreeRoutes& routes, bool together)
      : routes_(routes),
        together_(together),
        traffic_(static_cast<std::size_t>(routes.size())),
        waiting_(static_cast<std::size_t>(routes.size())) {
    for (int rank = 0; rank < routes.size(); ++rank) {
      endpoints_.push_back(std::make_unique<Endpoint>(*this, rank));
    }
  }

  void send(int from, const std::vector<int>& to, const Bytes& bytes) {
    endpoints_[static_cast<std::size_t>(from)]->router.send(to, bytes);
  }
  /// Delivers all frames but those that wait in relays.
  void deliver(const Receive& receive) {
    receive_ = &receive;
    while (!letters_.empty()) {
      const Letter letter = std::move(letters_.front());
      letters_.pop_front();
      endpoints_[static_cast<std::size_t>(letter.to)]->router.receive(letter.from, letter.ranks,
                                                                      letter.bytes);
    }
  }
  /// Lets the relays write what waits in them, the lowest first, so that each has got everything
  /// from below. Returns false when nothing waits.
  bool flush(const Receive& receive) {
    bool any = false;
    for (int relay = routes_.size() - 1; relay > 0; --relay) {  // ranks follow their parents
      net::CombiningQueue& waiting = waiting_[static_cast<std::size_t>(relay)];
      for (; !waiting.empty(); any = true) {
        net::CombiningQueue::Entry entry = waiting.pop();
        post({relay, routes_.parent(relay), std::move(entry.senders), std::move(entry.message)});
      }
      deliver(receive);
    }
    return any;
  }
  [[nodiscard]] const Traffic& traffic(int rank) const {
    return traffic_[static_cast<std::size_t>(rank)];
  }

 private:
  class Endpoint final : public net::ControlRouter::Actions {
   public:
    Endpoint(Post& post, int rank)
        : router(post.routes_, rank, *this),
          post_(post),
          rank_(rank),
          relays_(post.routes_.is_relay(rank)) {}
    void write(int neighbour, const net::RankSet& ranks,
               std::span<const std::byte> message) override {
      const bool to_root = neighbour == post_.routes_.parent(rank_) && !ranks.ranges().empty();
      if (to_root && relays_ && post_.together_) {
        post_.waiting_[static_cast<std::size_t>(rank_)].push(ranks, message);
      } else {
        post_.post({rank_, neighbour, ranks, Bytes(message.begin(), message.end())});
      }
    }
    void deliver(const std::vector<int>& from, std::span<const std::byte> message) override {
      (*post_.receive_)(from, rank_, message);
    }

    net::ControlRouter router;

   private:
    Post& post_;
    int rank_;
    bool relays_;
  };

  void post(Letter letter) {
    Traffic& out = traffic_[static_cast<std::size_t>(letter.from)];
    Traffic& in = traffic_[static_cast<std::size_t>(letter.to)];
    const std::size_t size =
        net::encode_control_frame(letter.ranks, {}).size() + letter.bytes.size();
    ++out.messages_out;
    ++in.messages_in;
    out.bytes_out += size;
    in.bytes_in += size;
    letters_.push_back(std::move(letter));
  }

  const TreeRoutes routes_;
  const bool together_;
  std::deque<Letter> letters_;
  std::vector<Traffic> traffic_;              // by rank
  std::vector<net::CombiningQueue> waiting_;  // by relay
  std::vector<std::unique_ptr<Endpoint>> endpoints_;
  const Receive* receive_ = nullptr;
};

/// A rank whose collectives take no time.
class Rank final : private Protocol::Actions {
 public:
  Rank(int rank, const ScaleOptions& options, Post& post)
      : rank_(rank), post_(post), protocol_(settings(rank, options), *this, time_point_at(0)) {}

  void announce(std::span<const Request> requests) {
    std::vector<Announcement> operations;
    for (const Request& request : requests) operations.push_back({request, 0});
    protocol_.submitted(std::move(operations), time_point_at(0));
  }
  void receive(const std::vector<int>& from, std::span<const std::byte> bytes) {
    protocol_.received(from, bytes, time_point_at(0));
  }
  void tick() { protocol_.tick({}, time_point_at(0)); }
  /// Completes the batches that rank 0 was told to run.
  bool finish_batches() {
    const bool any = running_ > 0;
    for (; running_ > 0; --running_) protocol_.batch_done(time_point_at(0));
    return any;
  }
  [[nodiscard]] bool frozen() const noexcept { return digest_ != 0; }
  [[nodiscard]] std::uint64_t digest() const noexcept { return digest_; }
  /// Runs one step of the frozen schedule.
  void replay(std::span<const Request> requests) {
    if (!replay_) return;
    for (const Request& request : requests) {
      if (!replay_->submitted(request)) throw Violation("the plan holds the step", request.name);
    }
    std::size_t run = 0;
    while (replay_->ready()) run += replay_->begin().batch->requests.size();
    if (run != requests.size()) throw Violation("a cycle is a step", "it is not");
  }

 private:
  static Protocol::Settings settings(int rank, const ScaleOptions& options) {
    using std::chrono::seconds;
    Protocol::Settings settings;
    settings.rank = rank;
    settings.size = options.ranks;
    settings.fanout = options.fanout;
    settings.fusion_threshold = std::size_t{16} << 20;
    settings.freeze_after = options.freeze_after;
    settings.detector = {seconds(1), seconds(10), seconds(10), seconds(1)};
    return settings;
  }

  void send(const std::vector<int>& to, const Message& message) override {
    post_.send(rank_, to, encode(message));
  }
  void run(const FusedBatch&) override { ++running_; }
  void carry_out(const Freeze& freeze) override {
    digest_ = digest_of(freeze.plan);
    if (rank_ < kReplayed) replay_.emplace(freeze.plan, freeze.epoch, rank_);
  }
  // These actions never occur here.
  void carry_out(const Rejection& it) override { throw Violation("no rejection", it.message); }
  void carry_out(const SetAdded& it) override { throw Violation("no sets", it.name); }
  void carry_out(const SetRemoved& it) override { throw Violation("no sets", it.name); }
  void carry_out(const AllJoined&) override { throw Violation("no join", ""); }
  std::uint64_t stop_replay() override { throw Violation("no thaw", ""); }
  void resume(const std::vector<std::uint64_t>&) override { throw Violation("no thaw", ""); }
  void stalled(const Stall& it) override { throw Violation("no stall", it.name); }
  void failed(const Verdict& it) override { throw Violation("no failure", it.cause); }
  void aborted(const Abort& it) override { throw Violation("no failure", it.fault.cause); }
  void shutdown_acknowledged() override { throw Violation("no shutdown", ""); }
  void slowest(const Slowest&, bool) override {}

  int rank_;
  Post& post_;
  Protocol protocol_;
  std::uint64_t digest_ = 0;  // of the frozen plan; 0: there is none
  std::optional<Replay> replay_;
  int running_ = 0;
};

void settle(std::vector<std::unique_ptr<Rank>>& ranks, Post& post, const Post::Receive& receive) {
  do {
    post.deliver(receive);
  } while (post.flush(receive) || ranks.front()->finish_batches());
}

Traffic minus(const Traffic& a, const Traffic& b) {
  return {a.messages_in - b.messages_in, a.messages_out - b.messages_out, a.bytes_in - b.bytes_in,
          a.bytes_out - b.bytes_out};
}

}  // namespace

ScaleRow measure_scale(const ScaleOptions& options) {
  const std::vector<Request> gradients = resnet50_gradients();
  ScaleRow row;
  row.ranks = options.ranks;
  row.fanout = options.fanout;
  row.together = options.together;
  row.tensors = static_cast<int>(gradients.size());
  row.tensors_per_message = options.tensors_per_message;
  const TreeRoutes routes(options.ranks, options.fanout);
  row.children = static_cast<int>(routes.children(0).size());
  for (int rank = options.ranks - 1; rank != 0; rank = routes.parent(rank)) ++row.levels;
  Post post(routes, options.together);
  std::vector<std::unique_ptr<Rank>> all;
  for (int rank = 0; rank < options.ranks; ++rank) {
    all.push_back(std::make_unique<Rank>(rank, options, post));
  }
  const Post::Receive receive = [&all](const std::vector<int>& from, int to,
                                       std::span<const std::byte> bytes) {
    all[static_cast<std::size_t>(to)]->receive(from, bytes);
  };
  const auto began = std::chrono::steady_clock::now();
  while (!all.front()->frozen()) {
    if (++row.steps_until_freeze > 50)
      throw Violation("the schedule freezes", "not within 50 steps");
    const std::span<const Request> step(gradients);
    const auto piece = static_cast<std::size_t>(options.tensors_per_message);
    for (std::size_t first = 0; first < step.size(); first += piece) {
      for (const auto& rank : all) {
        rank->announce(step.subspan(first, std::min(piece, step.size() - first)));
        post.deliver(receive);
      }
      settle(all, post, receive);
    }
  }
  row.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  const int relay = 1;
  row.until_freeze = post.traffic(0);
  row.relay = post.traffic(relay);
  row.follower = post.traffic(options.ranks - 1);
  for (int step = 0; step < kFrozenSteps; ++step) {
    for (const auto& rank : all) {
      if (rank->digest() != all.front()->digest())
        throw Violation("all freeze the same plan", "one has not");
      rank->replay(gradients);
    }
    settle(all, post, receive);
  }
  row.per_frozen_step = minus(post.traffic(0), row.until_freeze);
  row.per_frozen_step.messages_in /= kFrozenSteps;
  row.per_frozen_step.messages_out /= kFrozenSteps;
  row.per_frozen_step.bytes_in /= kFrozenSteps;
  row.per_frozen_step.bytes_out /= kFrozenSteps;
  const Traffic before = post.traffic(0);
  const Traffic relay_before = post.traffic(relay);
  for (int tick = 0; tick < kTicksPerSecond; ++tick) {
    for (const auto& rank : all) rank->tick();
    settle(all, post, receive);
  }
  row.per_second = minus(post.traffic(0), before);
  row.relay_per_second = minus(post.traffic(relay), relay_before);
  return row;
}

std::string scale_table(const std::vector<ScaleRow>& rows) {
  std::string text =
      "                                                 rank 0 until the freeze                  "
      "the "
      "first relay    "
      "  "
      "frozen step   per second, in + out\n"
      " ranks  fanout  levels  at once  together   msgs in  msgs out  MiB in  MiB out      s   "
      "msgs in  "
      "msgs out  MiB "
      "   "
      "     rank 0    rank 0   relay\n";
  const auto mib = [](std::uint64_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
  const auto both = [](const Traffic& it) { return it.messages_in + it.messages_out; };
  for (const ScaleRow& row : rows) {
    const Traffic& busy = row.until_freeze;
    text += fmt::format(
        "{:>6}  {:>6}  {:>6}  {:>7}  {:>8}  {:>8}  {:>8}  {:>6.2f}  {:>7.2f}  {:>5.2f}  {:>8}  "
        "{:>8}  "
        "{:>5.2f}  "
        "{:>11}  {:>8}  {:>6}\n",
        row.ranks, row.fanout, row.levels, row.tensors_per_message, row.together ? "yes" : "no",
        busy.messages_in, busy.messages_out, mib(busy.bytes_in), mib(busy.bytes_out), row.seconds,
        row.relay.messages_in, row.relay.messages_out,
        mib(row.relay.bytes_in + row.relay.bytes_out), both(row.per_frozen_step),
        both(row.per_second), both(row.relay_per_second));
  }
  return text;
}

std::string scale_json(const std::vector<ScaleRow>& rows) {
  const auto traffic = [](const Traffic& it) {
    return fmt::format(R"({{"messages_in":{},"messages_out":{},"bytes_in":{},"bytes_out":{}}})",
                       it.messages_in, it.messages_out, it.bytes_in, it.bytes_out);
  };
  std::string text = "[";
  for (const ScaleRow& row : rows) {
    text += fmt::format(
        R"({}{{"ranks":{},"fanout":{},"levels":{},"children":{},"together":{},)"
        R"("tensors":{},"tensors_per_message":{},)"
        R"("steps_until_freeze":{},"seconds":{:.3f},"rank0_until_freeze":{},)"
        R"("relay_until_freeze":{},"other_rank_until_freeze":{},"rank0_per_frozen_step":{},)"
        R"("rank0_per_second":{},"relay_per_second":{}}})",
        text.size() > 1 ? ",\n " : "", row.ranks, row.fanout, row.levels, row.children,
        row.together, row.tensors, row.tensors_per_message, row.steps_until_freeze, row.seconds,
        traffic(row.until_freeze), traffic(row.relay), traffic(row.follower),
        traffic(row.per_frozen_step), traffic(row.per_second), traffic(row.relay_per_second));
  }
  return text + "]\n";
}

}  // namespace hvd::sim
