// Stops a stream of the fake GPU.
#pragma once

#include <future>
#include <memory>

#include <c10/core/impl/VirtualGuardImpl.h>
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

namespace hvd::test {

inline cudaStream_t default_stream(c10::Device device) {
  const c10::impl::VirtualGuardImpl guard(device.type());
  return reinterpret_cast<cudaStream_t>(guard.getDefaultStream(device).id());
}

/// Stops the device's default stream until it is opened or destroyed.
class Gate {
 public:
  explicit Gate(c10::Device device) : stream_(default_stream(device)) {}
  void stop() {
    auto* const opened = new std::shared_future<void>(open_.get_future().share());
    EXPECT_EQ(cudaLaunchHostFunc(stream_, &wait, opened), cudaSuccess);
  }
  void open() { open_.set_value(); }

 private:
  static void wait(void* opened) {
    const std::unique_ptr<std::shared_future<void>> own(
        static_cast<std::shared_future<void>*>(opened));
    own->wait();
  }

  cudaStream_t stream_;
  std::promise<void> open_;
};

}  // namespace hvd::test
