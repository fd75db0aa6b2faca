// The environment contract as a function of any name → value lookup.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include <hvd/core/config.hpp>

namespace hvd {

/// The value of a variable, nothing when it is not set.
using Lookup = std::function<std::optional<std::string>(std::string_view name)>;

/// A rank's place as the PMIx server knows it.
struct PmixPlace {
  int rank = 0;
  int size = 1;
  int local_rank = -1;
  int local_size = -1;
};

/// What may be asked beside the variables. Asked only when a variable says that it is there.
struct Surroundings {
  /// Nothing when there is no PMIx server for this process, or no PMIx in this build.
  std::function<std::optional<PmixPlace>()> pmix = [] { return std::nullopt; };
  /// The process at the other end of an inherited Unix socket.
  std::function<std::optional<int>(int fd)> peer_process = [](int) { return std::nullopt; };
};

/// What `Config::from_environment` does, without the environment. Throws Errc::invalid_argument
/// naming the variable and its value.
[[nodiscard]] Config parse_config(const Lookup& lookup, const Surroundings& ask = {});

}  // namespace hvd
