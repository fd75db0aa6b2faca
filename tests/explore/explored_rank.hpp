// The whole state of one rank, as a value: the product's protocol and tensor table, and small
// models of the threads around them. docs/internals/exploration.md says what is abstracted.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "engine/tensor_table.hpp"
#include "policy/protocol.hpp"
#include "scenario.hpp"
#include "state_hash.hpp"

namespace hvd::explore {

/// What other threads have posted to the loop thread, which runs it in order.
struct LoopTask {
  enum class Kind : std::uint8_t { announce, thaw, batch_done, collective_failed, shutdown };
  Kind kind = Kind::announce;
  int culprit = -1;
};

/// The part that can simply be copied.
struct RankFacts {
  enum class Phase : std::uint8_t {
    idle,
    taken,      ///< a turn of the frozen schedule that is not announced yet
    at_fence,   ///< waits until all members have announced the turn
    cancelled,  ///< the thaw has withdrawn the turn
    moving,     ///< waits until all members take part in the collective
    moved,      ///< the collective is done, and its tensors complete one by one
  };
  enum class Executor : std::uint8_t { running, draining, stopped, over };
  enum class Ending : std::uint8_t { none, shut_down, failed };
  // Outcomes of an operation; an error is `kFirstError` and its code.
  static constexpr std::uint8_t kNotSubmitted = 0;
  static constexpr std::uint8_t kPending = 1;
  static constexpr std::uint8_t kSucceeded = 2;
  static constexpr std::uint8_t kFirstError = 3;

  // The user's thread.
  std::size_t step = 0;
  bool finished = false;
  bool closed = false;
  std::uint64_t observations = 0;
  std::vector<std::uint8_t> outcomes{};  ///< by step
  // The loop's thread.
  std::vector<LoopTask> tasks{};
  Ending ending = Ending::none;
  Errc code = Errc::internal;
  int culprit = -1;
  bool left = false;
  bool replaying = false;
  std::uint32_t epoch = 0;      ///< of the last freeze
  std::uint32_t impatient = 0;  ///< the last epoch whose thaw this rank wanted because it waits
  std::vector<std::uint64_t>
      settled{};  ///< the last thaw's sequence numbers, while a turn is taken
  // The executor's thread.
  Executor executor = Executor::running;
  bool broken = false;
  Phase phase = Phase::idle;
  bool completing = false;                       ///< some tensors of the batch have completed
  std::uint64_t number = 0;                      ///< of the collective within its set
  std::vector<std::uint64_t> collectives{0, 0};  ///< by set, those begun
};

struct ExploredRank : RankFacts {
  ExploredRank(const Scenario& scenario, int rank, detail::Protocol::Actions& actions,
               Clock::time_point now);
  ExploredRank(const ExploredRank& other);

  [[nodiscard]] StateHash hash(Clock::time_point now) const;
  [[nodiscard]] bool busy() const noexcept { return phase != Phase::idle; }
  [[nodiscard]] bool over() const noexcept {
    return ending != Ending::none && executor == Executor::over;
  }
  [[nodiscard]] bool can_take() const;
  [[nodiscard]] bool waits_for_others() const;
  [[nodiscard]] bool has_pending() const;

  int rank;
  int size;
  detail::Protocol protocol;
  std::unique_ptr<detail::TensorTable> table;
  std::vector<detail::LocalBatch> queue;
  detail::LocalBatch batch;
  mutable std::optional<StateHash> known_hash;  ///< reset by every change
};

}  // namespace hvd::explore
