// NVIDIA's management library (NVML), where the driver has brought it: which processes use which
// GPU, and how busy the GPUs are. It is loaded by name; nothing is built against it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <sys/types.h>

namespace hvd::launcher {

/// One GPU at one moment.
struct GpuState {
  struct Process {
    pid_t pid = 0;
    std::optional<std::uint64_t> memory{};  ///< bytes on this GPU, where the driver tells
  };
  std::optional<std::uint8_t> load{};  ///< percent of the last moments in which it worked
  std::vector<Process> processes{};
};

/// What some processes take from the GPUs.
struct GpuUse {
  std::optional<std::uint64_t> memory{};  ///< bytes, on all GPUs
  std::optional<std::uint8_t> load{};     ///< of the busiest GPU that one of them uses
};
/// Empty when none of `pids` uses a GPU.
[[nodiscard]] GpuUse gpu_use(std::span<const GpuState> gpus, std::span<const pid_t> pids);

/// For one thread at a time.
class Nvml {
 public:
  /// Null where the library, or what is needed of it, is missing. Asks no driver.
  [[nodiscard]] static std::unique_ptr<Nvml> open();
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  /// All GPUs of this machine. What the driver refuses is left out. Takes as long as the driver
  /// does: seconds the first time on some machines, for ever on a broken one.
  [[nodiscard]] std::vector<GpuState> look();

 private:
  struct Library;
  explicit Nvml(std::unique_ptr<Library> library);
  std::unique_ptr<Library> library_;
  bool ready_ = false;
};

}  // namespace hvd::launcher
