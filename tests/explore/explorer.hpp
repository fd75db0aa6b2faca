// Searches all states of a scenario, depth first.
//
// Several walks share one visited set and take turns. Each walk is a depth-first search from the
// first state that takes moves in an order of its own, so that the states seen after a while are
// not all in one corner. A walk passes over what another has seen, since that one still has it on
// its stack or has finished it; so when all walks are over, every reachable state was seen.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "explorable.hpp"
#include "visited_set.hpp"

namespace hvd::explore {

struct Counterexample {
  std::string violation;
  std::vector<Move> path;
};

class Explorer {
 public:
  Explorer(Scenario scenario, int walks);
  Explorer(const Explorer&) = delete;
  Explorer& operator=(const Explorer&) = delete;

  struct Counts {
    std::uint64_t transitions = 0;
    std::uint64_t ends = 0;  ///< terminal states
    std::uint64_t depth = 0;
  };

  /// Goes on until `states` distinct states are known, or all, or a violation is found.
  [[nodiscard]] std::optional<Counterexample> run(std::uint64_t states);
  [[nodiscard]] bool complete() const;
  [[nodiscard]] const VisitedSet& visited() const noexcept { return visited_; }
  [[nodiscard]] const Counts& counts() const noexcept { return counts_; }
  [[nodiscard]] const Scenario& scenario() const noexcept { return scenario_; }

  void save(const std::string& file) const;
  /// Returns false when there is no such file. Throws when it belongs to another exploration.
  bool load(const std::string& file);

 private:
  struct Frame {
    std::unique_ptr<Explorable> state;
    std::vector<Move> moves;
    std::size_t next = 0;
  };
  using Walk = std::vector<Frame>;

  [[nodiscard]] Frame frame_of(std::unique_ptr<Explorable> state, const StateHash& hash,
                               std::size_t walk) const;
  void advance(std::size_t walk);
  [[nodiscard]] std::string identity() const;

  const Scenario scenario_;
  std::vector<Walk> walks_;
  VisitedSet visited_;
  Counts counts_;
};

/// Tells whether a move may happen but need not.
[[nodiscard]] inline bool is_fault(const Move& move) { return move.kind > Move::Kind::time; }
/// Removes every move without which the same invariant still breaks.
[[nodiscard]] Counterexample shortened(const Scenario& scenario, const Counterexample& found);
/// Draws a path, one column for each rank, or for hvdrun and each worker.
[[nodiscard]] std::string chart_of(const Scenario& scenario, const Counterexample& found);

}  // namespace hvd::explore
