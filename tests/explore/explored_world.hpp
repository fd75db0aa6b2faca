// All ranks and channels of one state, and every move that may come next. A world is a value:
// copying one shares the ranks that do not change.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "explored_rank.hpp"

namespace hvd::explore {

struct Move {
  enum class Kind : std::uint8_t {
    user,      ///< the next step of the program, or the shutdown after it
    task,      ///< the loop runs what was posted to it first
    deliver,   ///< the first message from rank `argument`, or the end of its stream
    take,      ///< the executor takes a batch
    arrive,    ///< it announces the turn that it has taken
    complete,  ///< one tensor of a collective completes
    fail,      ///< the collective fails, and its backend blames rank `argument` - 1
    executor_ends,
    leave,       ///< the rank closes its streams
    impatience,  ///< the rank has waited for long, and asks for a thaw
    time,        ///< a tick of all ranks that run
    crash,       ///< `argument` says how many of its last messages are lost
    pause,
    proceed,
    cut,  ///< the stream to rank 0 is cut
  };
  Kind kind = Kind::user;
  std::uint8_t rank = 0;
  std::uint16_t argument = 0;

  friend bool operator==(const Move&, const Move&) = default;
};

/// A line of a chart.
struct ChartLine {
  int rank = 0;
  int from = -1;  ///< the sender of a message; -1: an event of the rank
  std::string text;
};

class ExploredWorld {
 public:
  explicit ExploredWorld(const Scenario& scenario);

  /// Every move that is possible, in an order that depends on the state only.
  [[nodiscard]] std::vector<Move> moves() const;
  /// Throws Violation, or what the product throws.
  void apply(const Move& move, std::vector<ChartLine>* chart = nullptr);
  [[nodiscard]] StateHash hash() const;
  /// Checks a state in which nothing more happens by itself.
  void check_end() const;

  /// Tells whether `time` is the only thing that may happen without a fault.
  [[nodiscard]] static bool only_time_passes(const std::vector<Move>& moves);

 private:
  friend class RankActions;

  struct Item {
    std::shared_ptr<const Bytes> bytes;  // null: the end of the stream
    StateHash hash;
    bool heartbeat = false;
  };
  struct Channel {
    std::vector<Item> items;
    bool closed = false;
  };
  struct OfRank {
    bool dead = false;
    bool paused = false;
    bool gone = false;  // takes part in no further collective
    bool cut = false;   // its stream to rank 0
    std::uint8_t pause_ticks = 0;
  };

  [[nodiscard]] const ExploredRank& at(int rank) const { return *ranks_[index(rank)]; }
  [[nodiscard]] ExploredRank& edit(int rank);
  [[nodiscard]] static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }
  [[nodiscard]] const OfRank& of(int rank) const { return of_[index(rank)]; }
  [[nodiscard]] Channel& channel(int from, int to) { return channels_[index(from)][index(to)]; }
  [[nodiscard]] const Channel& channel(int from, int to) const {
    return channels_[index(from)][index(to)];
  }
  [[nodiscard]] bool connected(int a, int b) const {
    return (a == 0) != (b == 0) && !of(a).cut && !of(b).cut;
  }
  [[nodiscard]] bool running(int rank) const { return !of(rank).dead && !of(rank).paused; }
  /// Tells whether others may blame the rank.
  [[nodiscard]] bool faulty(int rank) const;
  [[nodiscard]] bool fault_is_hidden() const;
  [[nodiscard]] std::vector<int> members(const detail::LocalBatch& batch) const;
  [[nodiscard]] bool misses_member(const ExploredRank& rank) const;

  void add_moves(int rank, std::vector<Move>& moves) const;
  void add_faults(std::vector<Move>& moves) const;
  [[nodiscard]] bool user_can_act(const ExploredRank& rank) const;
  void user_acts(ExploredRank& rank);
  void run_task(ExploredRank& rank);
  void deliver(int from, int to);
  void take(ExploredRank& rank);
  void start(ExploredRank& rank);
  void arrive(ExploredRank& rank);
  void complete(ExploredRank& rank);
  void executor_ends(ExploredRank& rank);
  void pass_time();
  void crash(int rank, int lost);
  void close(int rank);
  void stop_executor(ExploredRank& rank);
  void become_idle(ExploredRank& rank);

  void send(int from, const std::vector<int>& to, const detail::Message& message);
  void settle(ExploredRank& rank, const std::vector<std::uint64_t>& begun);
  void failed(ExploredRank& rank, const detail::Abort& abort);
  void resolve(ExploredRank& rank, detail::PendingTensor& tensor, std::optional<Errc> error);
  void meet(const ExploredRank& rank, RankFacts::Phase phase);
  void check_partners(const std::vector<int>& members) const;
  template <class... Args>
  void say(int rank, fmt::format_string<Args...> format, Args&&... args) const {
    if (chart_) chart_->push_back({rank, -1, fmt::format(format, std::forward<Args>(args)...)});
  }

  const Scenario* scenario_;
  Clock::time_point now_;
  int faults_left_;
  std::vector<std::shared_ptr<ExploredRank>> ranks_;
  std::array<std::array<Channel, kMostRanks>, kMostRanks> channels_;
  std::array<OfRank, kMostRanks> of_;
  std::vector<std::pair<int, int>> heartbeats_;  // while time passes
  bool time_passes_ = false;
  std::vector<ChartLine>* chart_ = nullptr;
};

[[nodiscard]] std::string to_string(const detail::Message& message);

}  // namespace hvd::explore
