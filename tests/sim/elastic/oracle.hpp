// Knows the truth about all workers of a run, and throws Violation when an invariant is broken.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "elastic/state.hpp"

namespace hvd::sim::elastic {

struct Job;
class Worker;

class Oracle {
 public:
  explicit Oracle(Job& job) : job_(job) {}

  // What hvdrun hears of and decides.
  void lists(const std::vector<int>& slots);
  void forms(const Membership::Form& form);
  void starts(int worker);
  /// `code` is the exit code; none: the host is lost.
  void knows_end_of(int worker, std::optional<int> code);
  /// hvdrun gets a message.
  void hears(int worker, const detail::Waits& waits);
  void kills(int worker);
  void tells_to_leave(int worker);
  void finishes(const Membership::Finish& finish);

  // What workers do.
  void assigned(const Worker& worker, std::uint32_t generation, int rank);
  void gathers(std::uint32_t generation, const Standing& standing, const Model& model,
               const Model& commit);
  void no_source(std::uint32_t generation);
  void synchronized(const Worker& worker, std::uint32_t generation, const Standing& standing,
                    const Model& model);
  void step_completed(const Worker& worker, std::uint32_t generation, int step, const Model& model);
  void epoch_is_over(const Worker& worker, const Model& model) const;
  void finished(const Worker& worker, const Model& model);

  [[nodiscard]] bool is_done() const { return done_; }
  [[nodiscard]] int steps() const { return furthest_; }

 private:
  /// Says when workers of a host have failed, as far as hvdrun knows.
  struct Host {
    std::optional<Nanos> failed_at{};  ///< the first time since a worker was last started on it
    std::optional<Nanos> before{};     ///< the failure before that; a worker was started since
  };

  void check_cooldown(const Host& host) const;
  /// hvdrun takes the worker for one that waits.
  void check_waits(int worker) const;
  // The reasons for the end.
  void check_state_is_lost() const;
  void check_patience() const;
  void check_too_few() const;
  [[nodiscard]] bool start_was_disturbed() const;
  [[nodiscard]] bool may_begin_anew(int worker) const;
  void agree(std::uint32_t generation, int step, const Model& model);
  [[nodiscard]] bool nobody_has_trained() const;
  [[nodiscard]] bool has_all_shards(std::uint32_t generation) const;

  Job& job_;
  std::map<std::pair<std::uint32_t, int>, std::uint64_t> digests_;
  std::map<std::uint32_t, Membership::Form> forms_;
  /// By generation and worker: when hvdrun heard first that it is lost, from one that is not.
  std::map<std::pair<std::uint32_t, int>, Nanos> blamed_;
  std::map<std::uint32_t, int> started_;   ///< by generation: how many have synchronized it
  std::map<int, std::uint32_t> heard_;     ///< by worker: the generation of its last message
  std::map<int, std::uint32_t> assigned_;  ///< by worker: its last generation
  std::set<int> told_to_leave_;
  std::set<int> over_;    ///< workers of which hvdrun knows that they have ended
  std::set<int> killed_;  ///< by hvdrun
  std::map<std::size_t, Host> hosts_;
  bool ended_well_ = false;                      ///< hvdrun knows that a member has ended with 0
  std::optional<int> code_;                      ///< of the first member that has failed since
  using Reached = std::pair<int, std::int64_t>;  ///< completed steps, ended iterations
  std::map<std::uint32_t, Reached> best_;        ///< by generation: of its furthest member
  /// Hosts of workers that have asked to leave since a generation formed last, and whether one of
  /// these was a member of it.
  std::map<std::size_t, bool> asking_hosts_;
  std::set<std::size_t> left_hosts_;   ///< that left as a whole, and are still listed
  std::uint32_t last_generation_ = 0;  ///< in which a step was completed
  int furthest_ = 0;                   ///< the most steps that any worker has completed
  std::set<std::uint64_t> completed_;  ///< digests after a step
  Nanos trained_at_ = 0;               ///< when hvdrun last heard that a generation had trained
  bool done_ = false;
};

}  // namespace hvd::sim::elastic
