#include "plan/slurm.hpp"

#include <algorithm>
#include <cstdint>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <hvd/core/internal/text.hpp>

#include "base/exit_codes.hpp"
#include "base/text.hpp"
#include "transport/agent_command.hpp"

namespace hvd::launcher {
namespace {

constexpr std::size_t kMaxNodes = 65'536;

[[noreturn]] void refuse(std::string_view text, std::string_view what) {
  refuse_value("Slurm's", text, fmt::format("not {}", what));
}

/// Splits at commas that are not inside brackets.
std::vector<std::string_view> split_list(std::string_view text) {
  std::vector<std::string_view> items;
  std::size_t begin = 0;
  int depth = 0;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    if (i < text.size() && text[i] == '[') ++depth;
    if (i < text.size() && text[i] == ']') --depth;
    if (i < text.size() && (text[i] != ',' || depth > 0)) continue;
    items.push_back(text.substr(begin, i - begin));
    begin = i + 1;
  }
  return items;
}

/// Expands "3" or "07-09", and puts `prefix` before each number and the text after the bracket
/// behind it.
void expand_range(std::string_view whole, std::string_view range, const std::string& prefix,
                  std::vector<std::string>& to) {
  const auto dash = range.find('-');
  const auto first_text = range.substr(0, dash);
  const auto first = detail::to_number<std::uint32_t>(first_text);
  const auto last = dash == std::string_view::npos
                        ? first
                        : detail::to_number<std::uint32_t>(range.substr(dash + 1));
  if (!first || !last || *last < *first || *last - *first >= kMaxNodes)
    refuse(whole, "a node list");
  for (std::uint32_t n = *first; n <= *last; ++n) {
    to.push_back(fmt::format("{}{:0{}}", prefix, n, first_text.size()));
  }
}

std::vector<std::string> expand_item(std::string_view whole, std::string_view item) {
  std::vector<std::string> names = {""};
  while (!item.empty()) {
    const auto open = item.find('[');
    for (std::string& name : names) name += item.substr(0, open);
    if (open == std::string_view::npos) break;
    const auto close = item.find(']', open);
    if (close == std::string_view::npos) refuse(whole, "a node list");
    std::vector<std::string> longer;
    for (const std::string& name : names) {
      for (const auto range : split_list(item.substr(open + 1, close - open - 1))) {
        expand_range(whole, range, name, longer);
        if (longer.size() > kMaxNodes) refuse(whole, "a node list");
      }
    }
    names = std::move(longer);
    item = item.substr(close + 1);
  }
  return names;
}

/// Returns the GPUs that all tasks of the allocation have on the node, in the form "4" or
/// "a100:4,v100:2", if GPUs were requested per task. Without such a request of its own a step takes
/// that of the allocation, and its only task would get the GPUs of one task.
std::string gpus_of_tasks(const std::string& node, const Variables& own) {
  const auto per_task = value_of(own, "SLURM_GPUS_PER_TASK");
  if (per_task.empty() || contains(own, "SLURM_GPUS_PER_NODE") ||
      !contains(own, "SLURM_TASKS_PER_NODE")) {
    return {};
  }
  const auto hosts = slurm_hosts(own).value_or(std::vector<HostSpec>());
  const auto host = std::find_if(hosts.begin(), hosts.end(),
                                 [&](const HostSpec& one) { return same_name(one.name, node); });
  if (host == hosts.end()) return {};
  std::vector<std::string> gpus;
  for (const auto item : split_list(per_task)) {
    const auto digits = item.find_last_of(":=") + 1;  // 0 without a type of GPU
    const auto count = detail::to_number<std::uint16_t>(item.substr(digits));
    if (!count) return {};
    gpus.push_back(fmt::format("{}{}", item.substr(0, digits), *count * host->slots));
  }
  return fmt::format("{}", fmt::join(gpus, ","));
}

}  // namespace

std::vector<std::string> expand_nodelist(std::string_view text) {
  std::vector<std::string> names;
  for (const auto item : split_list(text)) {
    for (std::string& name : expand_item(text, item)) {
      if (!is_host_name(name) || names.size() == kMaxNodes) refuse(text, "a node list");
      names.push_back(std::move(name));
    }
  }
  return names;
}

std::vector<int> expand_counts(std::string_view text) {
  std::vector<int> counts;
  for (const auto item : split_list(text)) {
    const auto open = item.find("(x");
    const auto count = detail::to_number<std::uint32_t>(item.substr(0, open));
    std::optional<std::uint32_t> times = 1;
    if (open != std::string_view::npos) {
      const auto rest = item.substr(open + 2);
      times = rest.ends_with(')')
                  ? detail::to_number<std::uint32_t>(rest.substr(0, rest.size() - 1))
                  : std::nullopt;
    }
    if (!count || !times || *count > kMaxNodes || *times > kMaxNodes - counts.size()) {
      refuse(text, "a list of counts");
    }
    counts.insert(counts.end(), *times, static_cast<int>(*count));
  }
  return counts;
}

std::optional<std::vector<HostSpec>> slurm_hosts(const Variables& own) {
  const auto nodes = value_of(own, "SLURM_JOB_NODELIST");
  if (!contains(own, "SLURM_JOB_ID") || nodes.empty()) return std::nullopt;
  auto counts = value_of(own, "SLURM_TASKS_PER_NODE");
  if (counts.empty()) counts = value_of(own, "SLURM_JOB_CPUS_PER_NODE");
  const auto names = expand_nodelist(nodes);
  const auto slots = counts.empty() ? std::vector<int>(names.size(), 1) : expand_counts(counts);
  if (slots.size() != names.size()) refuse(counts, fmt::format("one count for each of {}", nodes));
  std::vector<HostSpec> hosts;
  for (std::size_t i = 0; i < names.size(); ++i) {
    hosts.push_back({.name = names[i], .slots = std::max(slots[i], 1)});
  }
  return hosts;
}

std::vector<std::string> srun_command(const std::string& node, const std::string& program,
                                      const Variables& own) {
  std::vector<std::string> words = {
      "srun", "--quiet", "--nodes=1", "--ntasks=1", fmt::format("--nodelist={}", node),
      // Each node gets a step of its own. All steps run at the same time, and each uses everything
      // that the allocation has on its node.
      "--overlap", "--whole", "--cpu-bind=none", "--mpi=none", "--unbuffered", "--export=ALL"};
  if (const std::string gpus = gpus_of_tasks(node, own); !gpus.empty()) {
    words.push_back(fmt::format("--gpus-per-node={}", gpus));
  }
  words.insert(words.end(), {program, std::string(kRemoteAgentArgument)});
  return words;
}

Variables srun_variables(const Variables& own) {
  return without(own, {"SLURM_CPUS_PER_TASK", "SRUN_CPUS_PER_TASK", "SLURM_TRES_PER_TASK",
                       "SLURM_GPUS_PER_TASK", "SLURM_CPUS_PER_GPU", "SLURM_NTASKS_PER_GPU",
                       "SLURM_GPU_BIND", "SLURM_TRES_BIND", "SLURM_EXACT"});
}

}  // namespace hvd::launcher
