#include "nccl/cuda.hpp"

#include <array>
#include <chrono>
#include <exception>
#include <future>
#include <optional>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include <hvd/core/error.hpp>

namespace hvd::detail {
namespace {

constexpr std::chrono::seconds kDestroyTimeout{1};

}  // namespace

void check(cudaError_t result, std::string_view what) {
  if (result == cudaSuccess) return;
  // This clears the thread's last error, which unrelated code would find later.
  static_cast<void>(cudaGetLastError());
  throw Error(
      result == cudaErrorMemoryAllocation ? Errc::resource : Errc::internal,
      fmt::format("{}: {} ({})", what, cudaGetErrorString(result), cudaGetErrorName(result)));
}

// Every call that needs the device's context returns such an error. The manual does not say that
// cudaGetLastError, which resets it, does so twice.
cudaError_t lasting_error() noexcept {
  std::size_t free = 0;
  std::size_t total = 0;
  const cudaError_t error = cudaMemGetInfo(&free, &total);
  static_cast<void>(cudaGetLastError());
  return error;
}

bool is_ready(cudaError_t result, std::string_view what) {
  if (result != cudaErrorNotReady) {
    check(result, what);
    return true;
  }
  static_cast<void>(cudaGetLastError());
  return false;
}

std::string bus_id(int device) {
  std::array<char, 32> text{};
  check(cudaDeviceGetPCIBusId(text.data(), static_cast<int>(text.size()), device),
        "cudaDeviceGetPCIBusId");
  return text.data();
}

void* allocate_device(std::size_t size) {
  void* data = nullptr;
  check(cudaMalloc(&data, size), "cudaMalloc");
  return data;
}

void* allocate_pinned(std::size_t size) {
  void* data = nullptr;
  check(cudaHostAlloc(&data, size, cudaHostAllocPortable), "cudaHostAlloc");
  return data;
}

void destroy_in_background(std::shared_ptr<void> owned, int device) noexcept {
  try {
    auto destroyed = std::make_shared<std::promise<void>>();
    const std::future<void> end = destroyed->get_future();
    // If no thread can be started, the object stays.
    auto* const kept = new std::shared_ptr<void>(std::move(owned));
    std::thread([kept, device, destroyed] {
      std::optional<DeviceGuard> guard;
      try {
        guard.emplace(device);
        static_cast<void>(cudaDeviceSynchronize());  // what is queued uses memory of the object
      } catch (const Error&) {
        // A kernel has failed. Nothing runs on the device any more, and calls for it return at
        // once.
      }
      delete kept;
      destroyed->set_value();
    }).detach();
    end.wait_until(Clock::now() + kDestroyTimeout);
  } catch (const std::exception&) {
    return;
  }
}

void CudaStream::drain(Deadline deadline) const noexcept {
  try {
    while (!done() && Clock::now() < deadline) std::this_thread::yield();
  } catch (const Error&) {
    // After the error of a kernel nothing on the stream runs any more.
  }
}

}  // namespace hvd::detail
