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

#include "explorable.hpp"
#include "explored_rank.hpp"

namespace hvd::explore {

class ExploredWorld final : public Explorable {
 public:
  explicit ExploredWorld(const Scenario& scenario);

  [[nodiscard]] std::unique_ptr<Explorable> copy() const override {
    return std::make_unique<ExploredWorld>(*this);
  }
  [[nodiscard]] std::vector<Move> moves() const override;
  void apply(const Move& move, std::vector<ChartLine>* chart = nullptr) override;
  [[nodiscard]] StateHash hash() const override;
  void check_end() const override;
  [[nodiscard]] std::vector<std::string> columns() const override;

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
