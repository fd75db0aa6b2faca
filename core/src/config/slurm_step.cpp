#include "config/slurm_step.hpp"

#include <cstdint>
#include <limits>

#include <fmt/format.h>

#include <hvd/core/internal/text.hpp>

namespace hvd::detail {
namespace {

// In slurm.h, the interactive shell of salloc and the batch script have ids from here on.
constexpr std::uint32_t kSpecialSteps = 0xfffffff0;

// The ports are below those that Linux assigns to clients (ip_local_port_range), so most are free.
constexpr int kFirstPort = 20'000;
constexpr int kWindow = 16;
constexpr int kWindows = 750;

std::optional<std::uint32_t> step_id(const VariableReader& read) {
  const std::string_view name = read.first_set({"SLURM_STEP_ID", "SLURM_STEPID"});
  const auto text = read.text(name);
  if (!text) return std::nullopt;
  const auto id = to_number<std::uint32_t>(*text);
  if (!id) reject_variable(name, *text, "expected the number of a step");
  if (*id >= kSpecialSteps) return std::nullopt;
  return id;
}

int required(const VariableReader& read, std::string_view name) {
  const auto number = read.integer(name);
  if (number) return *number;
  const std::string_view step = read.first_set({"SLURM_STEP_ID", "SLURM_STEPID"});
  reject_variable(step, *read.text(step), fmt::format("but {} is not set", name));
}

/// Returns entry `node` of a list like "2(x3),1", or -1 when the list has no such entry.
int tasks_on(std::string_view name, std::string_view list, int node) {
  std::string_view rest = list;
  for (int first = 0; !rest.empty();) {
    const std::size_t comma = std::min(rest.find(','), rest.size());
    std::string_view entry = rest.substr(0, comma);
    rest.remove_prefix(std::min(comma + 1, rest.size()));
    int times = 1;
    if (const std::size_t open = entry.find("(x"); open != std::string_view::npos) {
      std::string_view repeat = entry.substr(open + 2);
      if (repeat.empty() || repeat.back() != ')') break;
      repeat.remove_suffix(1);
      times = to_number<int>(repeat).value_or(0);
      entry = entry.substr(0, open);
    }
    const auto tasks = to_number<int>(entry);
    if (!tasks || *tasks < 1 || times < 1) break;
    if (node - first < times) return *tasks;
    first += times;
    if (rest.empty()) return -1;
  }
  reject_variable(name, list, "expected counts of tasks as in 2(x3),1");
}

void read_local(const VariableReader& read, SlurmStep& step) {
  const auto local_rank = read.integer("SLURM_LOCALID");
  const auto node = read.integer("SLURM_NODEID");
  constexpr std::string_view kTasks = "SLURM_STEP_TASKS_PER_NODE";
  const auto tasks = read.text(kTasks);
  if (!local_rank || !node || !tasks) return;
  const int size = tasks_on(kTasks, *tasks, *node);
  if (*local_rank >= size) return;
  step.local_rank = *local_rank;
  step.local_size = size;
}

// Reads ports like "12000-12003" of a cluster that reserves them for steps (MpiParams=ports=...).
bool read_reserved_ports(const VariableReader& read, SlurmStep& step) {
  constexpr std::string_view kName = "SLURM_STEP_RESV_PORTS";
  const auto text = read.text(kName);
  if (!text || text->empty()) return false;
  const std::string_view list = std::string_view(*text).substr(0, text->find(','));
  const std::size_t dash = list.find('-');
  const auto first = to_number<std::uint16_t>(list.substr(0, dash));
  const auto last =
      dash == std::string_view::npos ? first : to_number<std::uint16_t>(list.substr(dash + 1));
  if (!first || !last || *first == 0 || *last < *first) {
    reject_variable(kName, *text, "expected ports as in 12000-12003");
  }
  step.first_port = *first;
  step.ports = *last - *first + 1;
  return true;
}

}  // namespace

std::string first_node_of(std::string_view list) {
  std::string name;
  while (!list.empty() && list.front() != ',') {
    if (list.front() != '[') {
      name += list.front();
      list.remove_prefix(1);
      continue;
    }
    const std::size_t close = list.find(']');
    if (close == std::string_view::npos) return "";
    name += list.substr(1, list.find_first_of(",-]") - 1);
    list.remove_prefix(close + 1);
  }
  return name;
}

std::optional<SlurmStep> read_slurm_step(const VariableReader& read) {
  const auto id = step_id(read);
  if (!id) return std::nullopt;
  SlurmStep step;
  step.rank = required(read, "SLURM_PROCID");
  const std::string_view size_name =
      read.first_set({"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"});
  step.size = required(read, size_name);
  if (step.size < 1) reject_variable(size_name, *read.text(size_name), "expected 1 or more");
  if (step.rank >= step.size) {
    reject_variable("SLURM_PROCID", *read.text("SLURM_PROCID"),
                    fmt::format("expected less than {}, which is {}", size_name, step.size));
  }
  const int job = required(read, read.first_set({"SLURM_JOB_ID", "SLURM_JOBID"}));
  step.job = fmt::format("slurm-{}.{}", job, *id);
  step.restarts = read.integer("SLURM_RESTART_COUNT").value_or(0);
  step.nodes = read.integer(read.first_set({"SLURM_STEP_NUM_NODES", "SLURM_NNODES"})).value_or(0);
  const auto nodes = read.text(read.first_set({"SLURM_STEP_NODELIST", "SLURM_NODELIST"}));
  if (nodes) step.first_node = first_node_of(*nodes);
  read_local(read, step);
  if (!read_reserved_ports(read, step)) {
    const auto window = (static_cast<std::uint64_t>(job) * 37 + *id) % kWindows;
    step.first_port = kFirstPort + static_cast<int>(window) * kWindow;
    step.ports = kWindow;
  }
  return step;
}

}  // namespace hvd::detail
