// Runs a job: chooses its backend and calls the collective with the job's tensors.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string_view>
#include <vector>

#include <hvd/core/backend.hpp>

#include "engine/job.hpp"
#include "engine/observer.hpp"

namespace hvd::detail {

/// One thread at a time calls it, except for `supports` and `abort`.
class CollectiveRunner {
 public:
  CollectiveRunner(std::vector<std::unique_ptr<Backend>> backends, int rank, int size,
                   Observer& observer);

  /// Any thread.
  [[nodiscard]] bool supports(const Request& request) const noexcept;
  /// Announces an allreduce that may still be cancelled (Backend::announce). `run`, `retract` or
  /// `abandon` of the same job follows.
  void announce(const Job& job);
  void retract() noexcept;
  void abandon() noexcept;
  /// The result of `run`.
  struct Ran {
    std::unique_ptr<AsyncCollective> async;  ///< null: the job is complete
    Clock::time_point time;    ///< when the job was complete; with `async`, when its call began
    std::string_view backend;  ///< the name of the backend; set with `async`
  };
  /// The clock shows `now`. An error that concerns one tensor alone is kept in that tensor. Throws
  /// what a backend throws.
  [[nodiscard]] Ran run(const Job& job, Clock::time_point now, Deadline deadline);
  /// All asynchronous collectives, the last of which runs on the backend `last`, must be complete
  /// before this job begins.
  [[nodiscard]] bool must_complete_before(const Job& job, std::string_view last) const noexcept;
  /// The asynchronous collective of this job is complete. To be called in the order in which they
  /// were started, by one thread at a time, also while another one runs a job.
  void completed(const Job& job, const Ran& ran);
  /// Any thread.
  void abort() noexcept;

 private:
  struct Group {
    std::vector<int> ranks;                         // in the context, ascending
    int place = 0;                                  // index of this rank among them
    std::vector<std::unique_ptr<Backend>> subsets;  // one per backend; empty for all ranks
  };

  [[nodiscard]] static bool runs_alone(const Job& job) noexcept;
  [[nodiscard]] std::size_t index_for(const Request& request) const noexcept;
  [[nodiscard]] Backend& backend_for(const Request& request, const Group& group) const;
  void add_set(std::int32_t id, const std::vector<int>& members, Deadline deadline);
  void add_pair(std::int32_t id, const std::vector<int>& pair, Deadline deadline);
  /// Returns the backend of a job that can be announced, otherwise null.
  [[nodiscard]] Backend* backend_to_tell(const Job& job) const noexcept;
  [[nodiscard]] AllreduceCall allreduce_call(const Job& job, CallObserver* observer);
  [[nodiscard]] std::span<const TensorSlice> slices(const Job& job);
  [[nodiscard]] const Group& group_of(const Job& job, Deadline deadline);
  void wait_for_data(Backend& backend, const Job& job, Clock::time_point began, Deadline deadline);
  void call(Backend& backend, const Job& job, const Group& group, Deadline deadline);
  void over(const Job& job, std::string_view backend, Clock::time_point began,
            Clock::time_point ended);
  void count(const Job& job);
  [[nodiscard]] static std::int64_t result_rows(const Job& job, std::size_t tensor,
                                                const Group& group);
  /// Allocates the results whose shape depends on what all ranks submitted, and sets the outputs of
  /// the submissions.
  void allocate_results(const Job& job, const Group& group) const;
  [[nodiscard]] void* allocate(PendingTensor& tensor, const Shape& shape) const;
  void allreduce(Backend& backend, const Job& job, Deadline deadline);
  void allgather(Backend& backend, const Job& job, Deadline deadline);
  void broadcast(Backend& backend, const Job& job, const Group& group, Deadline deadline);
  void reducescatter(Backend& backend, const Job& job, const Group& group, Deadline deadline);
  void alltoall(Backend& backend, const Job& job, Deadline deadline);

  const std::vector<std::unique_ptr<Backend>> backends_;
  const int rank_;
  Observer& observer_;
  std::map<std::int32_t, Group> groups_;
  std::vector<TensorSlice> slices_;  // of an allreduce or broadcast; keeps its memory
  Backend* told_ = nullptr;          // the backend to which these slices were announced, or null
  Clock::time_point completed_;      // when the last asynchronous collective was complete
};

}  // namespace hvd::detail
