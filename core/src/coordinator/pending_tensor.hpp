// An operation of this rank between `submit` and the end of its work.
#pragma once

#include <exception>
#include <memory>

#include <hvd/core/request.hpp>
#include <hvd/core/work.hpp>

namespace hvd {

struct PendingTensor {
  Submission submission;
  std::shared_ptr<WorkState> work = std::make_shared<WorkState>();
  Clock::time_point since;   ///< submitted
  std::exception_ptr error;  ///< struck this tensor on this rank alone; executor thread
  bool scheduled = false;    ///< part of a batch; guarded by the table
};

}  // namespace hvd
