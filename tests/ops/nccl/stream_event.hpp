// The event with which a training stream hands over a gradient.
#pragma once

#include <gtest/gtest.h>

#include <hvd/core/request.hpp>

#include "nccl/cuda.hpp"

namespace hvd::test {

/// Is ready once all that is in `stream` at the construction has run. Only streams may wait for it.
class StreamEvent final : public DeviceEvent {
 public:
  explicit StreamEvent(cudaStream_t stream) {
    EXPECT_EQ(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), cudaSuccess);
    EXPECT_EQ(cudaEventRecord(event_, stream), cudaSuccess);
  }
  ~StreamEvent() override { EXPECT_EQ(cudaEventDestroy(event_), cudaSuccess); }
  StreamEvent(const StreamEvent&) = delete;
  StreamEvent& operator=(const StreamEvent&) = delete;

  void wait(Deadline) override { ADD_FAILURE() << "a thread waits for the device"; }
  [[nodiscard]] void* handle() const noexcept override { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace hvd::test
