#include "scale.hpp"

#include <algorithm>
#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "coordinator/protocol.hpp"
#include "coordinator/replay.hpp"
#include "event_queue.hpp"
#include "resnet50.hpp"
#include "trace.hpp"

namespace hvd::sim {
namespace {

constexpr int kFrozenSteps = 10;

struct Letter {
  int from;
  int to;
  Bytes bytes;
};

struct Post {
  std::deque<Letter> letters;
  std::vector<Traffic> traffic;  // by rank
};

/// A rank whose collectives take no time.
class Rank final : private Protocol::Actions {
 public:
  Rank(int rank, int size, int freeze_after, Post& post)
      : rank_(rank),
        post_(post),
        protocol_(settings(rank, size, freeze_after), *this, time_point_at(0)) {}

  void announce(std::span<const Request> requests) {
    std::vector<Announcement> operations;
    for (const Request& request : requests) operations.push_back({request, 0});
    protocol_.submitted(std::move(operations), time_point_at(0));
  }
  void receive(const Letter& letter) {
    protocol_.received(letter.from, letter.bytes, time_point_at(0));
  }
  /// Rank 0: what it was told to run is done.
  bool finish_batches() {
    const bool any = running_ > 0;
    for (; running_ > 0; --running_) protocol_.batch_done(time_point_at(0));
    return any;
  }
  [[nodiscard]] bool frozen() const noexcept { return replay_.has_value(); }
  [[nodiscard]] std::size_t tensors_run() const noexcept { return tensors_run_; }
  /// One step of the frozen schedule.
  void replay(std::span<const Request> requests) {
    for (const Request& request : requests) {
      if (!replay_->submitted(request)) throw Violation("the plan holds the step", request.name);
    }
    for (tensors_run_ = 0; replay_->ready();)
      tensors_run_ += replay_->begin().batch->requests.size();
  }

 private:
  static Protocol::Settings settings(int rank, int size, int freeze_after) {
    using std::chrono::seconds;
    Protocol::Settings settings;
    settings.rank = rank;
    settings.size = size;
    settings.fusion_threshold = std::size_t{16} << 20;
    settings.freeze_after = freeze_after;
    settings.detector = {seconds(1), seconds(10), seconds(1)};
    return settings;
  }

  void send(int to, const Message& message) override {
    Bytes bytes = encode(message);
    Traffic& out = post_.traffic[static_cast<std::size_t>(rank_)];
    Traffic& in = post_.traffic[static_cast<std::size_t>(to)];
    ++out.messages_out;
    ++in.messages_in;
    out.bytes_out += bytes.size();
    in.bytes_in += bytes.size();
    post_.letters.push_back({rank_, to, std::move(bytes)});
  }
  void run(const Batch& batch) override {
    ++running_;
    tensors_run_ += batch.names.size();
  }
  void carry_out(const Freeze& freeze) override {
    replay_.emplace(freeze.plan, freeze.epoch, rank_);
  }
  // Nothing of this happens.
  void carry_out(const Rejection& it) override { throw Violation("no rejection", it.message); }
  void carry_out(const SetAdded& it) override { throw Violation("no sets", it.name); }
  void carry_out(const SetRemoved& it) override { throw Violation("no sets", it.name); }
  void carry_out(const AllJoined&) override { throw Violation("no join", ""); }
  std::uint64_t stop_replay() override { throw Violation("no thaw", ""); }
  void resume(const std::vector<std::uint64_t>&) override { throw Violation("no thaw", ""); }
  void stalled(const Stall& it) override { throw Violation("no stall", it.name); }
  void failed(const Verdict& it) override { throw Violation("no failure", it.cause); }
  void poisoned(const Poison& it) override { throw Violation("no failure", it.fault.cause); }
  void farewell() override { throw Violation("no farewell", ""); }

  int rank_;
  Post& post_;
  Protocol protocol_;
  std::optional<Replay> replay_;
  int running_ = 0;
  std::size_t tensors_run_ = 0;
};

void settle(std::vector<std::unique_ptr<Rank>>& ranks, Post& post) {
  do {
    while (!post.letters.empty()) {
      const Letter letter = std::move(post.letters.front());
      post.letters.pop_front();
      ranks[static_cast<std::size_t>(letter.to)]->receive(letter);
    }
  } while (ranks.front()->finish_batches() || !post.letters.empty());
}

Traffic minus(const Traffic& a, const Traffic& b) {
  return {a.messages_in - b.messages_in, a.messages_out - b.messages_out, a.bytes_in - b.bytes_in,
          a.bytes_out - b.bytes_out};
}

}  // namespace

ScaleRow measure_scale(int ranks, int tensors_per_message, int freeze_after) {
  const std::vector<Request> gradients = resnet50_gradients();
  ScaleRow row;
  row.ranks = ranks;
  row.tensors = static_cast<int>(gradients.size());
  row.tensors_per_message = tensors_per_message;
  Post post;
  post.traffic.resize(static_cast<std::size_t>(ranks));
  std::vector<std::unique_ptr<Rank>> all;
  for (int rank = 0; rank < ranks; ++rank) {
    all.push_back(std::make_unique<Rank>(rank, ranks, freeze_after, post));
  }
  const auto began = std::chrono::steady_clock::now();
  while (!all.front()->frozen()) {
    if (++row.steps_until_freeze > 50)
      throw Violation("the schedule freezes", "not within 50 steps");
    const std::span<const Request> step(gradients);
    const auto piece = static_cast<std::size_t>(tensors_per_message);
    for (std::size_t first = 0; first < step.size(); first += piece) {
      for (const auto& rank : all)
        rank->announce(step.subspan(first, std::min(piece, step.size() - first)));
      settle(all, post);
    }
  }
  row.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  row.until_freeze = post.traffic.front();
  row.follower = post.traffic.back();
  for (int step = 0; step < kFrozenSteps; ++step) {
    for (const auto& rank : all) {
      if (!rank->frozen()) throw Violation("all freeze", "one has not");
      rank->replay(gradients);
      if (rank->tensors_run() != gradients.size())
        throw Violation("a cycle is a step", "it is not");
    }
    settle(all, post);
  }
  row.per_frozen_step = minus(post.traffic.front(), row.until_freeze);
  row.per_frozen_step.messages_in /= kFrozenSteps;
  row.per_frozen_step.messages_out /= kFrozenSteps;
  row.per_frozen_step.bytes_in /= kFrozenSteps;
  row.per_frozen_step.bytes_out /= kFrozenSteps;
  return row;
}

std::string scale_table(const std::vector<ScaleRow>& rows) {
  std::string text =
      "                                 rank 0 until the freeze                       another rank"
      "        rank 0, frozen step\n"
      " ranks  tensors  at once  steps   msgs in  msgs out    MiB in   MiB out   s    msgs     KiB"
      "     msgs   bytes\n";
  const auto mib = [](std::uint64_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
  for (const ScaleRow& row : rows) {
    const Traffic& busy = row.until_freeze;
    text += fmt::format(
        "{:>6}  {:>7}  {:>7}  {:>5}  {:>8}  {:>8}  {:>8.2f}  {:>8.2f}  {:>5.2f}  {:>5}  {:>6.1f}  "
        "{:>6}  {:>6}\n",
        row.ranks, row.tensors, row.tensors_per_message, row.steps_until_freeze, busy.messages_in,
        busy.messages_out, mib(busy.bytes_in), mib(busy.bytes_out), row.seconds,
        row.follower.messages_in + row.follower.messages_out,
        1024 * mib(row.follower.bytes_in + row.follower.bytes_out),
        row.per_frozen_step.messages_in + row.per_frozen_step.messages_out,
        row.per_frozen_step.bytes_in + row.per_frozen_step.bytes_out);
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
        R"({}{{"ranks":{},"tensors":{},"tensors_per_message":{},"steps_until_freeze":{},"seconds":{:.3f},)"
        R"("rank0_until_freeze":{},"other_rank_until_freeze":{},"rank0_per_frozen_step":{}}})",
        text.size() > 1 ? ",\n " : "", row.ranks, row.tensors, row.tensors_per_message,
        row.steps_until_freeze, row.seconds, traffic(row.until_freeze), traffic(row.follower),
        traffic(row.per_frozen_step));
  }
  return text + "]\n";
}

}  // namespace hvd::sim
