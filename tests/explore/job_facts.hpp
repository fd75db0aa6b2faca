// Remembers what has happened in an elastic job, as far as the invariants need it, and checks them.
// The simulator's oracle checks the same.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include <hvd/core/internal/membership.hpp>

#include "explored_worker.hpp"

namespace hvd::explore {

struct JobFacts {
  using Reached = std::pair<int, std::int64_t>;  ///< completed steps, ended iterations
  using Workers = std::vector<ExploredWorker>;

  detail::Membership::Form form{};  ///< the last one
  std::map<std::pair<std::uint32_t, int>, std::uint64_t> digests{};
  std::map<std::uint32_t, int> started{};   ///< by generation: how many have synchronized it
  std::map<std::uint32_t, Reached> best{};  ///< by generation: of its furthest member
  std::size_t members_of_first = 0;
  std::set<std::uint64_t> completed{};  ///< digests after a step
  std::map<std::size_t, bool> asking_hosts{};
  std::set<std::size_t> left_hosts{};
  std::uint32_t last_generation = 0;  ///< in which a step was completed
  int furthest = 0;
  bool done = false;
  bool lost_process = false;  ///< a worker has ended with a code other than 0, or with its agent

  // These are called when hvdrun decides or hears something. Each throws Violation.
  void forms(const detail::Membership::Form& form, const detail::Membership::Options& options,
             Workers& workers);
  void hears(int number, const detail::Waits& waits, Clock::time_point now, Workers& workers);
  void kills(const ExploredWorker& worker, int number, Clock::time_point now) const;
  void tells_to_leave(int number, const std::vector<int>& slots, int max_np, Workers& workers);
  void finishes(const detail::Membership::Finish& finish, bool no_fault,
                const std::vector<int>& slots, int min_np, const Workers& workers) const;

  // These are called when a worker does something.
  void gathers(const ExploredWorker& worker);
  void no_source(const ExploredWorker& worker, bool mirrored) const;
  void synchronized(const ExploredWorker& worker);
  void step_completed(const ExploredWorker& worker);
  void finished(const ExploredWorker& worker, int samples);

  /// Generations before this one have no member any more.
  void forget_before(std::uint32_t generation);
  void add_to(StateHasher& hasher) const;

 private:
  void agree(std::uint32_t generation, int step, std::uint64_t digest);
  void check_every_sample_was_used(const ExploredWorker& worker, int samples) const;
  // The reasons for the end.
  void check_state_is_lost(const Workers& workers) const;
  void check_too_few(const std::vector<int>& slots, int min_np, const Workers& workers) const;
  [[nodiscard]] bool had_paused(const Workers& workers) const;
  [[nodiscard]] bool may_begin_anew(const ExploredWorker& worker) const;
  [[nodiscard]] bool nobody_has_trained() const;
};

}  // namespace hvd::explore
