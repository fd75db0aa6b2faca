#include "plan/devices.hpp"

#include <algorithm>
#include <fstream>
#include <optional>
#include <string_view>
#include <system_error>

#include <hvd/core/internal/text.hpp>

#include "plan/rank_environment.hpp"

namespace hvd::launcher {
namespace {

constexpr const char* kVisible = "CUDA_VISIBLE_DEVICES";

bool is_number(std::string_view text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

std::optional<int> number_below(int limit, std::string_view text) {
  const auto value = detail::to_number<int>(text);
  return is_number(text) && value && *value < limit ? value : std::nullopt;
}

/// Returns whether an entry of CUDA_VISIBLE_DEVICES is the name of a GPU or of a part of one.
bool is_named(std::string_view entry) {
  return entry.starts_with("GPU-") || entry.starts_with("MIG-");
}

/// Returns the entries of CUDA_VISIBLE_DEVICES. CUDA uses them up to the first that is not a GPU.
std::vector<std::string_view> visible_entries(const std::vector<std::string>& own) {
  std::vector<std::string_view> entries;
  std::string_view rest = value_of(own, kVisible);
  while (!rest.empty()) {
    std::string_view entry = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(entry.size() + 1, rest.size()));
    entry.remove_prefix(std::min(entry.find_first_not_of(' '), entry.size()));
    entries.push_back(entry);
  }
  return entries;
}

struct Gpu {
  std::string name;  ///< "GPU-" and its UUID
  Cpus near;
};

/// Returns the value of a line such as "Device Minor: \t 0".
std::string field(const std::filesystem::path& path, std::string_view name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(name)) continue;
    const auto begin = line.find_first_not_of(": \t", name.size());
    return begin == std::string::npos ? "" : line.substr(begin);
  }
  return "";
}

/// Reads which CPUs are near a device, whose folder in sysfs this is.
Cpus cpus_near(const std::filesystem::path& device) {
  std::string cpus;
  std::getline(std::ifstream(device / "local_cpulist"), cpus);
  return parse_cpu_list(cpus).value_or(Cpus());
}

/// Lists the GPUs that this machine or container may use by their places on the PCI bus.
std::vector<Gpu> list_gpus(const std::filesystem::path& root) {
  std::vector<std::filesystem::path> folders;
  std::error_code ended;
  for (std::filesystem::directory_iterator it(root / "proc/driver/nvidia/gpus", ended), end;
       !ended && it != end; it.increment(ended)) {
    folders.push_back(it->path());
  }
  std::sort(folders.begin(), folders.end());
  std::vector<Gpu> gpus;
  for (const std::filesystem::path& folder : folders) {
    const auto information = folder / "information";
    const std::string minor = field(information, "Device Minor");
    if (!std::filesystem::exists(root / "dev" / ("nvidia" + minor), ended)) continue;
    gpus.push_back({field(information, "GPU UUID"),
                    cpus_near(root / "sys/bus/pci/devices" / folder.filename())});
  }
  return gpus;
}

}  // namespace

int count_gpus(const std::filesystem::path& devices) {
  constexpr std::string_view kPrefix = "nvidia";
  int count = 0;
  std::error_code ended;
  for (std::filesystem::directory_iterator it(devices, ended), end; !ended && it != end;
       it.increment(ended)) {
    const std::string name = it->path().filename();
    if (name.starts_with(kPrefix) && is_number(std::string_view(name).substr(kPrefix.size()))) {
      ++count;
    }
  }
  return count;
}

int count_visible_gpus(const std::vector<std::string>& own, const std::filesystem::path& devices) {
  const int there = count_gpus(devices);
  if (!contains(own, kVisible)) return there;
  if (there == 0) return 0;
  int count = 0;
  for (const std::string_view entry : visible_entries(own)) {
    if (!is_named(entry) && !number_below(there, entry)) break;
    ++count;
  }
  return count;
}

std::vector<Cpus> cpus_near_gpus(const std::vector<std::string>& own,
                                 const std::filesystem::path& root) {
  const std::vector<Gpu> gpus = list_gpus(root);
  std::vector<Cpus> near;
  if (!contains(own, kVisible)) {
    for (const Gpu& gpu : gpus) near.push_back(gpu.near);
    return near;
  }
  for (const std::string_view entry : visible_entries(own)) {
    const auto number = number_below(static_cast<int>(gpus.size()), entry);
    if (!number && !is_named(entry)) break;
    const auto found = number ? gpus.begin() + *number
                              : std::find_if(gpus.begin(), gpus.end(), [&](const Gpu& gpu) {
                                  return gpu.name.starts_with(entry);
                                });
    near.push_back(found == gpus.end() ? Cpus() : found->near);
  }
  return near;
}

Cpus cpus_near_interface(const std::string& name, const std::filesystem::path& root) {
  const std::filesystem::path device = root / "sys/class/net" / name / "device";
  Cpus near = cpus_near(device);
  // The card of a virtual machine (virtio) has a device of its own below that on the PCI bus.
  return near.empty() ? cpus_near(device / "..") : near;
}

}  // namespace hvd::launcher
