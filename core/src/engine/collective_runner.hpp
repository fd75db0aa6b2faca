// Runs a batch: chooses its backend and calls the collective with the batch's tensors.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string_view>
#include <vector>

#include <hvd/core/internal/backend.hpp>

#include "engine/local_batch.hpp"
#include "engine/observer.hpp"

namespace hvd::detail {

/// One thread at a time calls it, except for `supports` and `abort`.
class CollectiveRunner {
 public:
  CollectiveRunner(std::vector<std::unique_ptr<Backend>> backends, int rank, int size,
                   Observer& observer);

  /// Any thread may call it.
  [[nodiscard]] bool supports(const Request& request) const noexcept;
  /// Announces an allreduce that may still be cancelled (Backend::announce). `run`, `retract` or
  /// `abandon` of the same batch follows.
  void announce(const LocalBatch& batch);
  void retract() noexcept;
  void abandon() noexcept;
  /// Holds the result of `run`.
  struct Ran {
    std::unique_ptr<AsyncCollective> async;  ///< null: the batch is complete
    Clock::time_point time;    ///< when the batch was complete; with `async`, when its call began
    std::string_view backend;  ///< the name of the backend; set with `async`
  };
  /// `now` is the present time. An error that concerns one tensor alone is kept in that tensor.
  /// Throws what a backend throws.
  [[nodiscard]] Ran run(const LocalBatch& batch, Clock::time_point now, Deadline deadline);
  /// Tells whether all asynchronous collectives, the last of which runs on the backend `last`, must
  /// be complete before this batch begins.
  [[nodiscard]] bool must_complete_before(const LocalBatch& batch,
                                          std::string_view last) const noexcept;
  /// Records that the asynchronous collective of this batch is complete. One thread at a time calls
  /// it, in the order in which the collectives were started, also while another thread runs a
  /// batch.
  void completed(const LocalBatch& batch, const Ran& ran);
  /// Any thread may call it.
  void abort() noexcept;

 private:
  struct Group {
    std::vector<int> ranks;                         // in the context, ascending
    int place = 0;                                  // index of this rank in `ranks`
    std::vector<std::unique_ptr<Backend>> subsets;  // one per backend; empty for all ranks
  };

  [[nodiscard]] static bool runs_alone(const LocalBatch& batch) noexcept;
  [[nodiscard]] std::size_t index_for(const Request& request) const noexcept;
  /// Returns the group's backend for a request, or null when none supports it.
  [[nodiscard]] Backend* backend_for(const Request& request, const Group& group) const noexcept;
  void add_set(std::int32_t id, const std::vector<int>& members, Deadline deadline);
  [[nodiscard]] AllreduceCall allreduce_call(const LocalBatch& batch, CallObserver* observer);
  [[nodiscard]] std::span<const TensorSlice> slices(const LocalBatch& batch);
  [[nodiscard]] const Group& group_of(const LocalBatch& batch, Deadline deadline);
  void wait_for_data(Backend& backend, const LocalBatch& batch, Clock::time_point began,
                     Deadline deadline);
  void call(Backend& backend, const LocalBatch& batch, const Group& group, Deadline deadline);
  void over(const LocalBatch& batch, std::string_view backend, Clock::time_point began,
            Clock::time_point ended);
  void count(const LocalBatch& batch);
  [[nodiscard]] static std::int64_t result_rows(const LocalBatch& batch, std::size_t tensor,
                                                const Group& group);
  /// Allocates the results whose shape depends on what all ranks submitted, and sets the outputs of
  /// the submissions.
  void allocate_results(const LocalBatch& batch, const Group& group) const;
  [[nodiscard]] void* allocate(PendingTensor& tensor, const Shape& shape) const;
  void allreduce(Backend& backend, const LocalBatch& batch, Deadline deadline);
  void allgather(Backend& backend, const LocalBatch& batch, Deadline deadline);
  void broadcast(Backend& backend, const LocalBatch& batch, const Group& group, Deadline deadline);
  void reducescatter(Backend& backend, const LocalBatch& batch, const Group& group,
                     Deadline deadline);
  void alltoall(Backend& backend, const LocalBatch& batch, Deadline deadline);

  const std::vector<std::unique_ptr<Backend>> backends_;
  const int rank_;
  Observer& observer_;
  std::map<std::int32_t, Group> groups_;
  std::vector<TensorSlice> slices_;  // of an allreduce or broadcast; keeps its memory
  Backend* announced_to_ = nullptr;  // the backend to which these slices were announced, or null
  Clock::time_point completed_;      // when the last asynchronous collective was complete
};

}  // namespace hvd::detail
