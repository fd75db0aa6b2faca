// Declares the environment contract as a function of any lookup from name to value.
// docs/reference/environment.md describes it.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include <hvd/core/config.hpp>

namespace hvd::detail {

/// Returns the value of a variable of the environment, or nothing when it is not set.
[[nodiscard]] std::optional<std::string> environment_variable(std::string_view name);

/// Returns the value of a variable, or nothing when it is not set.
using Lookup = std::function<std::optional<std::string>(std::string_view name)>;

/// Holds a rank and the sizes of its job and host, as the PMIx server reports them.
struct PmixRank {
  int rank = 0;
  int size = 1;
  int local_rank = -1;
  int local_size = -1;
};

/// Holds the sources of information besides the variables. Each is asked only when a variable tells
/// that it exists.
struct Surroundings {
  /// Returns nothing when there is no PMIx server for this process, or no PMIx in this build.
  std::function<std::optional<PmixRank>()> pmix = [] { return std::nullopt; };
  /// Returns the process at the other end of an inherited Unix socket.
  std::function<std::optional<int>(int fd)> peer_process = [](int) { return std::nullopt; };
};

/// Does what `Config::from_environment` does, without the environment. Throws
/// Errc::invalid_argument naming the variable and its value.
[[nodiscard]] Config parse_config(const Lookup& lookup, const Surroundings& ask = {});

/// Connects to the PMIx server of the launcher, once per process. Returns nothing when this process
/// or this build has none. May block for as long as the server takes to answer.
[[nodiscard]] std::optional<PmixRank> ask_pmix();

class VariableReader;

/// `parse_config` has two parts. The first reads rank, size, job and rendezvous from one of several
/// sets of variables (docs/reference/environment.md, "Which variables decide").
void read_job(const VariableReader& read, const Surroundings& ask, Config& config);
/// The second reads everything else: `HVD_*`, and `HOROVOD_*` where it means the same.
void read_settings(const VariableReader& read, Config& config);

}  // namespace hvd::detail
