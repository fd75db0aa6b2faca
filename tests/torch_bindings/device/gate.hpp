// Stops a stream of the fake GPU.
#pragma once

#include <future>
#include <memory>

#include <c10/core/DeviceGuard.h>
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

namespace hvd::test {

/// Stops the device's default stream until it is opened or destroyed.
class Gate {
 public:
  explicit Gate(c10::Device device) : device_(device) {}
  void stop() {
    auto* const opened = new std::shared_future<void>(open_.get_future().share());
    const c10::DeviceGuard guard(device_);
    EXPECT_EQ(cudaLaunchHostFunc(nullptr, &wait, opened), cudaSuccess);
  }
  void open() { open_.set_value(); }

 private:
  static void wait(void* opened) {
    const std::unique_ptr<std::shared_future<void>> own(
        static_cast<std::shared_future<void>*>(opened));
    own->wait();
  }

  c10::Device device_;
  std::promise<void> open_;
};

}  // namespace hvd::test
