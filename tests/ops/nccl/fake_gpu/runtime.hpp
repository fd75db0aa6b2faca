// The state that the two fake libraries share.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <cuda_runtime_api.h>

#include "fake_gpu/stream.hpp"

namespace hvd::test::fake_gpu {

struct Event {
  int device = 0;
  std::shared_ptr<Stream> stream;  ///< null: not recorded yet
  Ticket ticket = 0;
};

/// Handles are keys and never dereferenced, so a destroyed handle is recognised. Thread-safe.
class Runtime {
 public:
  void reset(int device_count);
  [[nodiscard]] int device_count() const;
  void refuse_count(cudaError_t error);
  [[nodiscard]] cudaError_t error_of_count() const;

  void* add_stream(int device);
  /// A null handle is the default stream of the current device, whose use makes a context there.
  [[nodiscard]] std::shared_ptr<Stream> stream(const void* handle);
  bool remove_stream(const void* handle);
  [[nodiscard]] std::vector<std::shared_ptr<Stream>> streams_of(int device) const;

  void* add_event(int device);
  bool record(const void* event, const void* stream);
  [[nodiscard]] std::shared_ptr<Event> event(const void* handle) const;
  bool remove_event(const void* handle);

  void break_device(int device);
  [[nodiscard]] bool is_broken(int device) const;

  void lack_code(int device);
  /// Loads the copy kernel. Returns false where it has no code for the device.
  [[nodiscard]] bool load_kernel(int device);
  [[nodiscard]] bool has_kernel(int device) const;

  void make_context(int device);
  [[nodiscard]] std::set<int> contexts() const;

  void violate(std::string what);
  [[nodiscard]] std::vector<std::string> violations() const;
  void note(std::string_view function);
  void on_next(std::string_view function, std::function<void()> then);
  [[nodiscard]] int calls(std::string_view function) const;
  void note_copy(std::size_t bytes);
  [[nodiscard]] std::size_t copied_bytes() const;
  [[nodiscard]] std::vector<std::string> leaks() const;

 private:
  /// The caller holds the lock.
  [[nodiscard]] std::shared_ptr<Stream> find_stream(const void* handle);

  mutable std::mutex mutex_;
  int device_count_ = 0;
  cudaError_t error_of_count_ = cudaSuccess;
  std::uintptr_t next_handle_ = 0x1000;
  std::map<const void*, std::shared_ptr<Stream>> streams_;
  std::map<const void*, std::shared_ptr<Event>> events_;
  std::map<int, std::shared_ptr<Stream>> default_streams_;  ///< by device
  std::set<int> broken_;
  std::set<int> without_code_;
  std::set<int> with_kernel_;
  std::set<int> contexts_;
  std::vector<std::string> violations_;
  std::map<std::string, int, std::less<>> calls_;
  std::map<std::string, std::function<void()>, std::less<>> on_next_;
  std::size_t copied_bytes_ = 0;
};

[[nodiscard]] Runtime& runtime();

/// Returns the device of the calling thread.
[[nodiscard]] int& current_device();
/// Does the same for a call that makes a context on the device.
[[nodiscard]] int used_device();

// These are defined in fake_nccl.cpp.
/// Aborts remaining communicators between tests.
void reset_nccl();
/// Runs the collectives that are queued on a device. Returns false if one does not end, for example
/// because a rank does not take part.
[[nodiscard]] bool complete_collectives(int device);
[[nodiscard]] std::vector<std::string> nccl_leaks();

}  // namespace hvd::test::fake_gpu
