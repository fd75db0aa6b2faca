// How many NVIDIA GPUs there are, without asking the driver.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace hvd::launcher {

/// That this machine, or container, may use: those whose device files are in `devices`.
[[nodiscard]] int count_gpus(const std::filesystem::path& devices);

/// Those of them that CUDA_VISIBLE_DEVICES among the variables `own` leaves to a program.
[[nodiscard]] int count_visible_gpus(const std::vector<std::string>& own,
                                     const std::filesystem::path& devices = "/dev");

}  // namespace hvd::launcher
