// Which operations all ranks are ready for. Pure: no clock, thread, socket or unordered iteration.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <hvd/core/request.hpp>

#include "coordinator/decision.hpp"
#include "coordinator/fusion_plan.hpp"

namespace hvd {

/// An operation that some ranks wait for and others have not submitted.
struct Stall {
  std::string name;
  OpKind kind = OpKind::allreduce;
  std::vector<int> submitted;
  std::vector<int> missing;
  Clock::duration age{};
};

/// Rank 0's state machine. Events go in, `take` hands out decisions.
class Negotiator {
 public:
  Negotiator(int size, std::size_t fusion_threshold);

  /// `rank` is ready for these operations. Throws Errc::protocol when it had already submitted one
  /// of them and it is still pending: a rank may not do that, so it is broken.
  void submitted(int rank, std::vector<Request> requests, Clock::time_point now);
  /// `rank` has shut down: what is pending, and whatever comes later, is rejected.
  void departed(int rank);

  /// All rejections, and up to `max_batches` batches, oldest first; tensors that are ready at the
  /// same time are fused.
  [[nodiscard]] std::vector<Decision> take(std::size_t max_batches);

  /// Every rank has departed and everything decided has been taken.
  [[nodiscard]] bool finished() const noexcept;
  /// Operations that have waited for at least `age`, oldest first.
  [[nodiscard]] std::vector<Stall> stalls(Clock::time_point now, Clock::duration age) const;

 private:
  struct Entry {
    std::vector<Request> requests;  // by order of arrival
    std::vector<int> ranks;         // who sent it, parallel to `requests`
    Clock::time_point since;
    std::uint64_t arrival = 0;  // order among entries
  };

  void resolve(const std::string& name, const Entry& entry);
  void reject_departed(const std::string& name);

  int size_;
  std::size_t fusion_threshold_;
  std::uint64_t arrivals_ = 0;
  std::map<std::string, Entry, std::less<>> pending_;
  std::deque<Rejection> rejections_;
  std::deque<ReadyTensor> ready_;
  std::set<int> departed_;
};

}  // namespace hvd
