// Counts NVIDIA GPUs without asking the driver, and finds the CPUs near GPUs and network cards.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "plan/cpu_list.hpp"

namespace hvd::launcher {

/// Counts the GPUs that this machine or container may use, which have a device file in `devices`.
[[nodiscard]] int count_gpus(const std::filesystem::path& devices);

/// Counts the GPUs among them that CUDA_VISIBLE_DEVICES in `own` makes visible to a program.
[[nodiscard]] int count_visible_gpus(const std::vector<std::string>& own,
                                     const std::filesystem::path& devices = "/dev");

/// Returns the CPUs near each GPU that CUDA_VISIBLE_DEVICES in `own` makes visible, in CUDA's order
/// for equal GPUs. A GPU of which the kernel does not say this has none. The list is empty when
/// there are no GPUs. `root` is where the file systems of the kernel are mounted.
[[nodiscard]] std::vector<Cpus> cpus_near_gpus(const std::vector<std::string>& own,
                                               const std::filesystem::path& root = "/");

/// Returns the CPUs near the card of a network interface, such as "eth0". An interface without a
/// card of its own, such as "lo" or a bridge, has none.
[[nodiscard]] Cpus cpus_near_interface(const std::string& name,
                                       const std::filesystem::path& root = "/");

}  // namespace hvd::launcher
