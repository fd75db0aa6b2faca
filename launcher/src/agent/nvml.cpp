#include "agent/nvml.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include <dlfcn.h>

namespace hvd::launcher {
namespace {

// These declarations follow NVML's API reference, for the few functions that are used. Names with a
// version are part of the library's stable ABI.
using Result = int;
using Device = void*;
constexpr Result kSuccess = 0;
constexpr Result kInsufficientSize = 7;

struct Utilization {
  unsigned int gpu;  // percent
  unsigned int memory;
};
struct ProcessInfo {
  unsigned int pid;
  unsigned long long memory;  // bytes; all ones: not available
  unsigned int gpu_instance;
  unsigned int compute_instance;
};
constexpr unsigned long long kNotAvailable = std::numeric_limits<unsigned long long>::max();

/// The most processes of a GPU that are read; a training job has far fewer.
constexpr unsigned int kMostProcesses = 4'096;

struct CloseLibrary {
  void operator()(void* handle) const noexcept { ::dlclose(handle); }
};

template <typename Function>
bool find(void* library, const char* name, Function& to) {
  to = reinterpret_cast<Function>(::dlsym(library, name));
  return to != nullptr;
}

}  // namespace

struct Nvml::Library {
  std::unique_ptr<void, CloseLibrary> handle;
  Result (*init)() = nullptr;
  Result (*shutdown)() = nullptr;
  Result (*count)(unsigned int*) = nullptr;
  Result (*device)(unsigned int, Device*) = nullptr;
  Result (*utilization)(Device, Utilization*) = nullptr;
  Result (*processes)(Device, unsigned int*, ProcessInfo*) = nullptr;

  [[nodiscard]] std::vector<GpuState::Process> processes_on(Device gpu) const {
    // The list may grow between the call that returns its size and the call that reads it.
    std::vector<ProcessInfo> list(64);
    for (;;) {
      auto size = static_cast<unsigned int>(list.size());
      const Result result = processes(gpu, &size, list.data());
      if (result == kInsufficientSize && list.size() < kMostProcesses) {
        list.resize(
            std::min(std::max(2U * static_cast<unsigned int>(list.size()), size), kMostProcesses));
        continue;
      }
      list.resize(result == kSuccess ? std::min<std::size_t>(size, list.size()) : 0);
      break;
    }
    std::vector<GpuState::Process> found;
    for (const ProcessInfo& one : list) {
      found.push_back({.pid = static_cast<pid_t>(one.pid)});
      if (one.memory != kNotAvailable) found.back().memory = one.memory;
    }
    return found;
  }
};

GpuUse gpu_use(std::span<const GpuState> gpus, std::span<const pid_t> pids) {
  GpuUse use;
  for (const GpuState& gpu : gpus) {
    for (const GpuState::Process& process : gpu.processes) {
      if (std::find(pids.begin(), pids.end(), process.pid) == pids.end()) continue;
      if (process.memory) use.memory = use.memory.value_or(0) + *process.memory;
      if (gpu.load) use.load = std::max(use.load.value_or(0), *gpu.load);
    }
  }
  return use;
}

std::unique_ptr<Nvml> Nvml::open() {
  auto library = std::make_unique<Library>();
  library->handle.reset(::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL));
  void* const handle = library->handle.get();
  // The last function is newer than the others. Both of its versions fill the same structure.
  const bool complete =
      handle != nullptr && find(handle, "nvmlInit_v2", library->init) &&
      find(handle, "nvmlShutdown", library->shutdown) &&
      find(handle, "nvmlDeviceGetCount_v2", library->count) &&
      find(handle, "nvmlDeviceGetHandleByIndex_v2", library->device) &&
      find(handle, "nvmlDeviceGetUtilizationRates", library->utilization) &&
      (find(handle, "nvmlDeviceGetComputeRunningProcesses_v3", library->processes) ||
       find(handle, "nvmlDeviceGetComputeRunningProcesses_v2", library->processes));
  if (!complete) return nullptr;
  return std::unique_ptr<Nvml>(new Nvml(std::move(library)));
}

Nvml::Nvml(std::unique_ptr<Library> library) : library_(std::move(library)) {}

Nvml::~Nvml() {
  if (ready_) library_->shutdown();
}

std::vector<GpuState> Nvml::look() {
  ready_ = ready_ || library_->init() == kSuccess;
  unsigned int count = 0;
  if (!ready_ || library_->count(&count) != kSuccess) return {};
  std::vector<GpuState> gpus;
  for (unsigned int index = 0; index < count; ++index) {
    Device device = nullptr;
    if (library_->device(index, &device) != kSuccess) continue;
    GpuState& gpu = gpus.emplace_back();
    Utilization busy{};
    if (library_->utilization(device, &busy) == kSuccess) {
      gpu.load = static_cast<std::uint8_t>(std::min(busy.gpu, 100U));
    }
    gpu.processes = library_->processes_on(device);
  }
  return gpus;
}

}  // namespace hvd::launcher
