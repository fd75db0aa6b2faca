#include "plan/platform_modelarts.hpp"

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <system_error>

#include <fmt/format.h>

#include <hvd/core/internal/text.hpp>

#include "base/exit_codes.hpp"
#include "base/text.hpp"
#include "plan/rank_environment.hpp"
#include "supervise/start_process.hpp"
#include "transport/frames.hpp"

namespace hvd::launcher {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kHosts = "VC_WORKER_HOSTS";
constexpr std::string_view kIndex = "VC_TASK_INDEX";
constexpr std::string_view kNumHosts = "MA_NUM_HOSTS";
constexpr std::string_view kNumGpus = "MA_NUM_GPUS";
constexpr std::string_view kJobDir = "MA_JOB_DIR";

/// Throws a LaunchError that names the variable `name` and its value.
[[noreturn]] void refuse(std::string_view name, std::string_view value, std::string_view why) {
  refuse_value(fmt::format("{} is", name), value, why);
}

int number(std::string_view name, std::string_view text, int least) {
  const auto value = detail::to_number<int>(text);
  if (!value || *value < least || *value > kMostNodes) {
    refuse(name, text, fmt::format("expected a whole number, {} or more", least));
  }
  return *value;
}

/// The values of the three arguments that count nodes: the master's address, this node and the
/// number of nodes.
struct Said {
  std::string init_method;
  std::optional<int> rank;
  std::optional<int> world_size;
};

/// Fills in the missing options and keeps those that are set.
void fill(NodeOptions& to, const Said& said) {
  if (!said.init_method.empty() && to.master_address.empty() && to.rdzv_endpoint.empty()) {
    constexpr std::string_view kScheme = "tcp://";
    if (!said.init_method.starts_with(kScheme)) {
      refuse("--init_method", said.init_method, "expected tcp://HOST:PORT");
    }
    const std::string endpoint = said.init_method.substr(kScheme.size());
    if (to.master_port) {
      to.master_address = endpoint.substr(0, endpoint.rfind(':'));
    } else {
      to.rdzv_endpoint = endpoint;
    }
  }
  if (!to.node_rank) to.node_rank = said.rank;
  if (to.nodes.empty() && said.world_size) to.nodes = fmt::to_string(*said.world_size);
}

/// Reads "--rank" and "--world_size" only beside "--init_method", since the program may have a
/// "--rank" of its own.
Said among(const std::vector<std::string>& program) {
  Variables found;
  for (std::size_t i = 1; i < program.size(); ++i) {
    if (!program[i].starts_with("--")) continue;
    const bool whole = program[i].find('=') != std::string::npos;
    if (whole) {
      found.push_back(program[i]);
    } else if (i + 1 < program.size()) {
      found.push_back(fmt::format("{}={}", program[i], program[i + 1]));
    }
  }
  found = merge(found, {});  // the last value wins, as with Python's argparse
  if (!contains(found, "--init_method")) return {};
  Said said{.init_method = std::string(value_of(found, "--init_method")),
            .rank = std::nullopt,
            .world_size = std::nullopt};
  if (contains(found, "--rank")) said.rank = number("--rank", value_of(found, "--rank"), 0);
  if (contains(found, "--world_size")) {
    said.world_size = number("--world_size", value_of(found, "--world_size"), 1);
  }
  return said;
}

void fill_from_variables(NodeOptions& to, const Variables& own) {
  std::vector<std::string_view> hosts = detail::split_at(value_of(own, kHosts), ',');
  std::erase(hosts, "");
  if (!hosts.empty() && to.master_address.empty() && to.rdzv_endpoint.empty()) {
    to.master_address = hosts.front();
  }
  if (to.nodes.empty() && contains(own, kNumHosts)) {
    to.nodes = fmt::to_string(number(kNumHosts, value_of(own, kNumHosts), 1));
  } else if (to.nodes.empty() && !hosts.empty()) {
    to.nodes = fmt::to_string(hosts.size());
  }
  if (!to.node_rank && contains(own, kIndex)) {
    to.node_rank = number(kIndex, value_of(own, kIndex), 0);
  }
  if (to.processes.empty() && contains(own, kNumGpus)) {
    to.processes = fmt::to_string(number(kNumGpus, value_of(own, kNumGpus), 1));
  }
}

}  // namespace

bool is_modelarts(const std::vector<std::string>& own) {
  return contains(own, kHosts) && contains(own, kIndex);
}

NodeOptions with_platform(const NodeOptions& options, const std::vector<std::string>& own,
                          const std::vector<std::string>& program) {
  if (options.platform.empty()) {
    const char* name = !options.init_method.empty() ? "--init-method"
                       : options.rank               ? "--rank"
                       : options.world_size         ? "--world-size"
                                                    : nullptr;
    if (name == nullptr) return options;
    throw LaunchError(kExitUsage,
                      fmt::format("{} is an option of --platform modelarts (--master-addr, "
                                  "--node-rank and --nnodes are for all)",
                                  name));
  }
  if (options.platform != kModelArts) {
    throw LaunchError(kExitUsage, fmt::format("--platform {}: hvdrun knows modelarts",
                                              in_quotes(options.platform)));
  }
  NodeOptions filled = options;
  fill(filled, {options.init_method, options.rank, options.world_size});
  fill_from_variables(filled, own);
  fill(filled, among(program));
  return filled;
}

std::string modelarts_program(const std::string& name, const std::vector<std::string>& own) {
  const std::string directory(value_of(own, kJobDir));
  if (directory.empty() || name.find('/') != std::string::npos) return name;
  try {
    (void)find_program(name, value_of(own, "PATH"));
    return name;
  } catch (const LaunchError&) {
    const auto is_file = [](const fs::path& path) {
      std::error_code error;
      return fs::is_regular_file(path, error);
    };
    std::vector<std::string> found;
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(directory, error)) {
      if (is_file(entry.path() / name)) found.push_back(entry.path() / name);
    }
    if (found.empty() || is_file(fs::path(directory) / name)) return fs::path(directory) / name;
    if (found.size() == 1) return found.front();
    std::sort(found.begin(), found.end());
    refuse(kJobDir, directory,
           fmt::format("{} and {} both exist: give the path of the program", found[0], found[1]));
  }
}

}  // namespace hvd::launcher
