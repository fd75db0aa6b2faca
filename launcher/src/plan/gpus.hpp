// Counts NVIDIA GPUs without asking the driver.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace hvd::launcher {

/// Counts the GPUs that this machine or container may use, which have a device file in `devices`.
[[nodiscard]] int count_gpus(const std::filesystem::path& devices);

/// Counts the GPUs among them that CUDA_VISIBLE_DEVICES in `own` makes visible to a program.
[[nodiscard]] int count_visible_gpus(const std::vector<std::string>& own,
                                     const std::filesystem::path& devices = "/dev");

}  // namespace hvd::launcher
