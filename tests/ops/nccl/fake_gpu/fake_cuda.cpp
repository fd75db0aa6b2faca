// The fake CUDA runtime: the functions of libcudart that the NCCL backend calls.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <cuda_runtime_api.h>

#include "fake_gpu/device_memory.hpp"
#include "fake_gpu/fake_gpu.hpp"
#include "fake_gpu/runtime.hpp"

using hvd::test::fake_gpu::complete_collectives;
using hvd::test::fake_gpu::current_device;
using hvd::test::fake_gpu::device_memory;
using hvd::test::fake_gpu::Event;
using hvd::test::fake_gpu::kPinned;
using hvd::test::fake_gpu::note;
using hvd::test::fake_gpu::note_copy;
using hvd::test::fake_gpu::runtime;
using hvd::test::fake_gpu::Stream;
using hvd::test::fake_gpu::used_device;
using hvd::test::fake_gpu::violate;

namespace {

constexpr int kGreatestPriority = -5;

cudaError_t misuse(const std::string& what) {
  violate(what);
  return cudaErrorInvalidValue;
}

std::atomic<bool> captured_elsewhere{false};

struct CapturedStreams {
  std::mutex mutex;
  std::set<const void*> handles;
};

CapturedStreams& captured_streams() {
  static CapturedStreams streams;
  return streams;
}

bool is_captured(const void* stream) {
  const std::lock_guard lock(captured_streams().mutex);
  return captured_streams().handles.count(stream) > 0;
}

bool is_any_captured(int device) {
  const std::lock_guard lock(captured_streams().mutex);
  const std::set<const void*>& handles = captured_streams().handles;
  return std::any_of(handles.begin(), handles.end(), [&](const void* handle) {
    const std::shared_ptr<Stream> stream = runtime().stream(handle);
    return stream && stream->device() == device;
  });
}

cudaStreamCaptureMode& capture_mode() {
  thread_local cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  return mode;
}

/// Must be called by functions that CUDA forbids to other threads during a capture.
void require_no_capture(const std::string& function) {
  if (captured_elsewhere && capture_mode() == cudaStreamCaptureModeGlobal) {
    violate(function + " breaks the capture of another thread");
  }
}

cudaError_t& last_error() {
  thread_local cudaError_t error = cudaSuccess;
  return error;
}

/// Is kept as the thread's last error, as by CUDA.
cudaError_t not_ready() { return last_error() = cudaErrorNotReady; }

/// Returns the error of a kernel that has failed on the device. Every call reports it that needs
/// the device's context.
cudaError_t state_of(int device) {
  return runtime().is_broken(device) ? last_error() = cudaErrorIllegalAddress : cudaSuccess;
}

cudaError_t synchronize_device(int device) {
  for (const std::shared_ptr<Stream>& stream : runtime().streams_of(device)) {
    stream->synchronize(stream->tail());
  }
  return state_of(device);
}

bool on_device(const void* data, std::size_t size) {
  return device_memory().contains(data, size, -1);
}

}  // namespace

void hvd::test::fake_gpu::capture_elsewhere(bool begins) { captured_elsewhere = begins; }

void hvd::test::fake_gpu::capture(const void* stream, bool begins) {
  const std::lock_guard lock(captured_streams().mutex);
  if (begins) {
    captured_streams().handles.insert(stream);
  } else {
    captured_streams().handles.erase(stream);
  }
}

extern "C" {

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  std::swap(*mode, capture_mode());
  return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
  note("cudaStreamIsCapturing");
  const std::shared_ptr<Stream> stream = runtime().stream(handle);
  if (!stream) return misuse("cudaStreamIsCapturing of a stream that does not exist");
  if (const cudaError_t error = state_of(stream->device())) return error;
  if (handle == nullptr && is_any_captured(stream->device())) {
    return last_error() = cudaErrorStreamCaptureImplicit;
  }
  *status = is_captured(handle) ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int* count) {
  if (const cudaError_t error = runtime().error_of_count()) return last_error() = error;
  *count = runtime().device_count();
  return *count > 0 ? cudaSuccess : cudaErrorNoDevice;
}

cudaError_t cudaGetDevice(int* device) {
  note("cudaGetDevice");
  *device = current_device();
  return cudaSuccess;
}

// As from CUDA 12 on, this makes a context at once.
cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= runtime().device_count()) return cudaErrorInvalidDevice;
  if (const cudaError_t error = state_of(device)) return error;
  current_device() = device;
  static_cast<void>(used_device());
  return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char* text, int size, int device) {
  std::snprintf(text, static_cast<std::size_t>(size), "0000:%02x:00.0", device + 1);
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  if (attribute == cudaDevAttrComputeCapabilityMajor) {
    *value = 6;
  } else if (attribute == cudaDevAttrComputeCapabilityMinor) {
    *value = 1;
  } else {
    return misuse("an attribute that the fake does not know");
  }
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() { return synchronize_device(used_device()); }

// CUDA's manual does not say that this repeats the error of a kernel that has failed for good.
cudaError_t cudaGetLastError() { return std::exchange(last_error(), cudaSuccess); }

const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaSuccess ? "no error" : "an error of the fake CUDA runtime";
}

const char* cudaGetErrorName(cudaError_t error) {
  if (error == cudaErrorIllegalAddress) return "cudaErrorIllegalAddress";
  return error == cudaSuccess ? "cudaSuccess" : "cudaErrorFake";
}

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  *free = *total = std::size_t{1} << 30;
  return state_of(used_device());
}

// CUDA may let this wait for all that runs on the device. Here it waits for collectives only, since
// the rest would hide that a stream does not wait for it.
cudaError_t cudaMalloc(void** data, std::size_t size) {
  require_no_capture("cudaMalloc");
  if (const cudaError_t error = state_of(used_device())) return error;
  if (!complete_collectives(used_device())) violate("cudaMalloc waits for what nobody ends");
  *data = device_memory().allocate(size, used_device());
  return cudaSuccess;
}

cudaError_t cudaFree(void* data) {
  if (data == nullptr) return cudaSuccess;
  const cudaError_t state = synchronize_device(used_device());
  if (device_memory().release(data) < 0) return misuse("cudaFree of a pointer nobody allocated");
  return state;
}

cudaError_t cudaHostAlloc(void** data, std::size_t size, unsigned int) {
  note("cudaHostAlloc");
  require_no_capture("cudaHostAlloc");
  if (const cudaError_t error = state_of(used_device())) return error;
  *data = device_memory().allocate(size, kPinned);
  return cudaSuccess;
}

cudaError_t cudaFreeHost(void* data) {
  if (data != nullptr && device_memory().release(data) != kPinned) {
    return misuse("cudaFreeHost of a pointer that cudaHostAlloc did not give");
  }
  return cudaSuccess;
}

// Is queued on the default stream, for which non-blocking streams do not wait.
cudaError_t cudaMemset(void* data, int value, std::size_t size) {
  return cudaMemsetAsync(data, value, size, nullptr);
}

// Waits for the default stream and copies, except that the last part of the way from pageable
// memory, out of CUDA's own pinned memory, takes place when the default stream reaches it.
cudaError_t cudaMemcpy(void* dst, const void* src, std::size_t size, cudaMemcpyKind kind) {
  note("cudaMemcpy");
  if (const cudaError_t error = state_of(used_device())) return error;
  const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  if (size == 0) return cudaSuccess;
  if ((to_device && !on_device(dst, size)) || (from_device && !on_device(src, size))) {
    return misuse("cudaMemcpy outside device memory");
  }
  const std::shared_ptr<Stream> standard = runtime().stream(nullptr);
  standard->synchronize(standard->tail());
  if (kind == cudaMemcpyHostToDevice && !device_memory().contains(src, size, kPinned)) {
    const auto* const bytes = static_cast<const std::byte*>(src);
    standard->push([dst, staged = std::vector<std::byte>(bytes, bytes + size)] {
      std::memcpy(dst, staged.data(), staged.size());
    });
    return cudaSuccess;
  }
  std::memcpy(dst, src, size);
  return state_of(standard->device());
}

cudaError_t cudaMemcpyAsync(void* dst, const void* src, std::size_t size, cudaMemcpyKind kind,
                            cudaStream_t handle) {
  note("cudaMemcpyAsync");
  const std::shared_ptr<Stream> stream = runtime().stream(handle);
  if (!stream) return misuse("cudaMemcpyAsync on a stream that does not exist");
  if (const cudaError_t error = state_of(stream->device())) return error;
  const bool pinned_dst = device_memory().contains(dst, size, kPinned);
  const bool pinned_src = device_memory().contains(src, size, kPinned);
  if (kind == cudaMemcpyDeviceToHost && !pinned_dst) {
    return misuse("cudaMemcpyAsync to pageable memory, which the caller waits for");
  }
  const bool by_address = kind == cudaMemcpyDefault && (pinned_src || pinned_dst);
  if (kind == cudaMemcpyDeviceToHost || (kind == cudaMemcpyHostToDevice && pinned_src) ||
      by_address) {
    const void* const on_device = pinned_src ? dst : src;
    if (!device_memory().contains(on_device, size, stream->device())) {
      return misuse("cudaMemcpyAsync outside the memory of the stream's device");
    }
    // The copy takes place when the stream reaches it, not earlier.
    stream->push([=] { std::memmove(dst, src, size); });
    return cudaSuccess;
  }
  const bool from_host = kind == cudaMemcpyHostToDevice;
  const bool within = kind == cudaMemcpyDeviceToDevice || kind == cudaMemcpyDefault;
  if (!from_host && !within) return misuse("a kind the fake does not know");
  if (!device_memory().contains(dst, size, stream->device()) ||
      (!from_host && !device_memory().contains(src, size, stream->device()))) {
    return misuse("cudaMemcpyAsync outside the memory of the stream's device");
  }
  if (!from_host) {
    note_copy(dst, src, size);
    stream->push([=] { std::memmove(dst, src, size); });
    return cudaSuccess;
  }
  // Pageable memory is read before the call returns.
  const auto* const bytes = static_cast<const std::byte*>(src);
  stream->push([dst, staged = std::vector<std::byte>(bytes, bytes + size)] {
    std::memcpy(dst, staged.data(), staged.size());
  });
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* data, int value, std::size_t size, cudaStream_t handle) {
  const std::shared_ptr<Stream> stream = runtime().stream(handle);
  if (!stream) return misuse("cudaMemsetAsync on a stream that does not exist");
  if (const cudaError_t error = state_of(stream->device())) return error;
  if (!device_memory().contains(data, size, stream->device())) {
    return misuse("cudaMemsetAsync outside the memory of the stream's device");
  }
  stream->push([=] { std::memset(data, value, size); });
  return cudaSuccess;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t function, void* data) {
  const std::shared_ptr<Stream> stream = runtime().stream(handle);
  if (!stream) return misuse("cudaLaunchHostFunc on a stream that does not exist");
  if (const cudaError_t error = state_of(stream->device())) return error;
  stream->push([=] { function(data); });
  return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = kGreatestPriority;
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned int, int priority) {
  note(priority == kGreatestPriority ? "cudaStreamCreateWithPriority, greatest"
                                     : "cudaStreamCreateWithPriority");
  if (const cudaError_t error = state_of(used_device())) return error;
  *stream = static_cast<cudaStream_t>(runtime().add_stream(used_device()));
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  if (!runtime().remove_stream(handle)) return misuse("cudaStreamDestroy twice");
  return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t handle) {
  note("cudaStreamQuery");
  require_no_capture("cudaStreamQuery");
  if (is_captured(handle)) violate("cudaStreamQuery breaks the capture of its stream");
  const std::shared_ptr<Stream> stream = runtime().stream(handle);
  if (!stream) return misuse("cudaStreamQuery of a stream that does not exist");
  if (const cudaError_t error = state_of(stream->device())) return error;
  return stream->query(stream->tail()) ? cudaSuccess : not_ready();
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  require_no_capture("cudaStreamSynchronize");
  const std::shared_ptr<Stream> stream = runtime().stream(handle);
  if (!stream) return misuse("cudaStreamSynchronize of a stream that does not exist");
  stream->synchronize(stream->tail());
  return state_of(stream->device());
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int) {
  if (const cudaError_t error = state_of(used_device())) return error;
  *event = static_cast<cudaEvent_t>(runtime().add_event(used_device()));
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  if (!runtime().remove_event(event)) return misuse("cudaEventDestroy twice");
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const std::shared_ptr<Stream> line = runtime().stream(stream);
  if (line && runtime().is_broken(line->device())) return cudaErrorIllegalAddress;
  if (!runtime().record(event, stream)) {
    return misuse("cudaEventRecord on a stream of another device, or destroyed");
  }
  return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t waiting, cudaEvent_t handle, unsigned int) {
  note("cudaStreamWaitEvent");
  const std::shared_ptr<Stream> stream = runtime().stream(waiting);
  const std::shared_ptr<Event> event = runtime().event(handle);
  if (!stream || !event) return misuse("cudaStreamWaitEvent on what does not exist");
  if (const cudaError_t error = state_of(stream->device())) return error;
  if (!event->stream) return cudaSuccess;
  stream->push([event] { event->stream->synchronize(event->ticket); });
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t handle) {
  note("cudaEventQuery");
  require_no_capture("cudaEventQuery");
  const std::shared_ptr<Event> event = runtime().event(handle);
  if (!event) return misuse("cudaEventQuery of an event that does not exist");
  if (const cudaError_t error = state_of(event->device)) return error;
  if (!event->stream) return cudaSuccess;
  return event->stream->query(event->ticket) ? cudaSuccess : not_ready();
}

}  // extern "C"
