// Turns a job into calls of the backend that runs it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include <hvd/core/backend.hpp>

#include "coordinator/job.hpp"
#include "coordinator/observer.hpp"

namespace hvd {

/// One thread at a time, but for `supports` and `abort`.
class CollectiveRunner {
 public:
  CollectiveRunner(std::vector<std::unique_ptr<Backend>> backends, int rank, int size,
                   Observer& observer);

  /// Any thread.
  [[nodiscard]] bool supports(const Request& request) const noexcept;
  /// Before a job that may not come (Backend::announce); then either `run` or `retract` it.
  void announce(const Job& job);
  void retract() noexcept;
  /// It is `now`; returns when it was over. What went wrong with one tensor alone is kept in it.
  /// Throws what a backend throws.
  Clock::time_point run(const Job& job, Clock::time_point now, Deadline deadline);
  /// Any thread.
  void abort() noexcept;

 private:
  struct Group {
    std::vector<int> ranks;                         // in the context, ascending
    int place = 0;                                  // this rank among them
    std::vector<std::unique_ptr<Backend>> subsets;  // parallel to the whole's; empty: the whole
  };

  [[nodiscard]] std::size_t index_for(const Request& request) const noexcept;
  [[nodiscard]] Backend& backend_for(const Request& request, const Group& group) const;
  void add_set(std::int32_t id, const std::vector<int>& members, Deadline deadline);
  void add_pair(std::int32_t id, const std::vector<int>& pair, Deadline deadline);
  /// The backend of a job that can be announced, else null.
  [[nodiscard]] Backend* backend_to_tell(const Job& job) const noexcept;
  [[nodiscard]] AllreduceCall allreduce_call(const Job& job, CallObserver* observer);
  [[nodiscard]] std::span<const TensorSlice> slices(const Job& job);
  [[nodiscard]] const Group& group_of(const Job& job, Deadline deadline);
  void wait_for_data(Backend& backend, const Job& job, Clock::time_point began, Deadline deadline);
  void call(Backend& backend, const Job& job, const Group& group, Deadline deadline);
  void count(const Job& job);
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
  Backend* told_ = nullptr;          // of the allreduce that is announced, with these slices
};

}  // namespace hvd
