// An operation of this rank between `submit` and the end of its work.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>

#include <hvd/core/request.hpp>
#include <hvd/core/work.hpp>

namespace hvd {

struct PendingTensor {
  explicit PendingTensor(std::shared_ptr<WorkDriver> driver = nullptr)
      : work(std::make_shared<WorkState>(std::move(driver))) {}

  Submission submission;
  std::shared_ptr<WorkState> work;
  Clock::time_point since;         ///< submitted
  Clock::time_point scheduled_at;  ///< by the coordinator; before the executor gets it
  std::exception_ptr error;        ///< struck this tensor on this rank alone; holder of the baton

  bool stand_in = false;  ///< for an operation of others, on a rank that has joined

  // Guarded by the table.
  std::uint64_t order = 0;    ///< among this rank's submissions
  std::uint32_t segment = 0;  ///< see Announcement
  bool scheduled = false;     ///< part of a batch that runs, or that is about to
  bool planned = false;       ///< has a place in the frozen schedule
};

}  // namespace hvd
