// A libnvidia-ml.so.1 without a driver, for hvdrun's agent. On GPU 0, which works for 37 percent of
// the time, every child of the process that loads it has 100 MiB; on GPU 1, 80 percent, every
// grandchild has 200 MiB; GPU 2 tells nothing. HVD_FAKE_NVML=broken: init fails; hangs: it hangs.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include <unistd.h>

namespace {

constexpr int kSuccess = 0;
constexpr int kNotSupported = 3;
constexpr int kInsufficientSize = 7;
constexpr int kUnknown = 999;

std::vector<unsigned> children_of(unsigned parent) {
  std::vector<unsigned> children;
  std::error_code ended;
  const std::filesystem::path tasks = "/proc/" + std::to_string(parent) + "/task";
  for (std::filesystem::directory_iterator it(tasks, ended), end; !ended && it != end;
       it.increment(ended)) {
    std::ifstream list(it->path() / "children");
    for (unsigned pid = 0; list >> pid;) children.push_back(pid);
  }
  return children;
}

std::string_view mode() {
  const char* const text = std::getenv("HVD_FAKE_NVML");
  return text == nullptr ? "" : text;
}

bool ready = false;

}  // namespace

extern "C" {

struct Utilization {
  unsigned int gpu;
  unsigned int memory;
};
struct ProcessInfo {
  unsigned int pid;
  unsigned long long memory;
  unsigned int gpu_instance;
  unsigned int compute_instance;
};

int nvmlInit_v2() {
  while (mode() == "hangs") ::pause();
  ready = mode() != "broken";
  return ready ? kSuccess : kUnknown;
}

int nvmlShutdown() {
  ready = false;
  return kSuccess;
}

int nvmlDeviceGetCount_v2(unsigned int* count) {
  if (!ready) return kUnknown;
  *count = 4;  // the last cannot be had
  return kSuccess;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void** device) {
  if (!ready || index > 2) return kUnknown;
  *device = reinterpret_cast<void*>(std::uintptr_t{index} + 1);
  return kSuccess;
}

int nvmlDeviceGetUtilizationRates(void* device, Utilization* to) {
  const auto index = reinterpret_cast<std::uintptr_t>(device) - 1;
  if (!ready || index > 1) return kNotSupported;
  *to = {index == 0 ? 37U : 80U, 1};
  return kSuccess;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void* device, unsigned int* count, ProcessInfo* to) {
  const auto index = reinterpret_cast<std::uintptr_t>(device) - 1;
  if (!ready || index > 1) return kNotSupported;
  std::vector<unsigned> pids = children_of(static_cast<unsigned>(::getpid()));
  if (index == 1) {
    std::vector<unsigned> grandchildren;
    for (const unsigned child : pids) {
      for (const unsigned pid : children_of(child)) grandchildren.push_back(pid);
    }
    pids = grandchildren;
  }
  // As if many others used it too, so that the first question asks for too few.
  constexpr unsigned kOthers = 100;
  pids.insert(pids.begin(), kOthers, 1U);
  const auto room = *count;
  *count = static_cast<unsigned int>(pids.size());
  if (room < pids.size()) return kInsufficientSize;
  for (const unsigned pid : pids) *to++ = {pid, (index + 1) * (100ULL << 20U), 0, 0};
  return kSuccess;
}

}  // extern "C"
