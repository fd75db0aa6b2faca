// Reads, from NVIDIA's management library (NVML), which processes use which GPU and how busy the
// GPUs are. The driver installs the library. It is loaded by name at run time, so that no build
// needs it.
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
    std::optional<std::uint64_t> memory{};  ///< bytes on this GPU, if the driver reports it
  };
  std::optional<std::uint8_t> load{};  ///< percent of the last moments in which it worked
  std::vector<Process> processes{};
};

/// The share of the GPUs that a set of processes uses.
struct GpuUse {
  std::optional<std::uint64_t> memory{};  ///< bytes, on all GPUs
  std::optional<std::uint8_t> load{};     ///< of the busiest GPU that one of them uses
};
/// Returns an empty result when none of `pids` uses a GPU.
[[nodiscard]] GpuUse gpu_use(std::span<const GpuState> gpus, std::span<const pid_t> pids);

/// One thread at a time may use it.
class Nvml {
 public:
  /// Returns null where the library, or a function of it, is missing. Makes no call into the
  /// driver.
  [[nodiscard]] static std::unique_ptr<Nvml> open();
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  /// Returns the state of all GPUs of this machine, without values that the driver refuses to
  /// return. The driver may need seconds for the first call, and a broken driver never returns.
  [[nodiscard]] std::vector<GpuState> look();

 private:
  struct Library;
  explicit Nvml(std::unique_ptr<Library> library);
  std::unique_ptr<Library> library_;
  bool ready_ = false;
};

}  // namespace hvd::launcher
