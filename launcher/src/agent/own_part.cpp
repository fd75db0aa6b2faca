#include "agent/own_part.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include <fmt/format.h>
#include <unistd.h>

#include <hvd/core/error.hpp>
#include <hvd/core/internal/text.hpp>

#include "base/text.hpp"
#include "plan/rank_environment.hpp"

namespace hvd::launcher {
namespace {

/// The variables with a rank's identity and the store. An agent takes them from hvdrun.
constexpr std::array<std::string_view, 16> kFromOutside = {
    "HVD_RANK",       "HVD_SIZE",   "HVD_LOCAL_RANK",    "HVD_LOCAL_SIZE",   "HVD_CROSS_RANK",
    "HVD_CROSS_SIZE", "HVD_JOB_ID", "HVD_RESTART_COUNT", "HVD_STORE",        "RANK",
    "WORLD_SIZE",     "LOCAL_RANK", "GROUP_RANK",        "LOCAL_WORLD_SIZE", "MASTER_ADDR",
    "MASTER_PORT"};

}  // namespace

void keep_identity(std::vector<std::string>& variables) {
  std::erase_if(variables, [](const std::string& entry) {
    const auto name = std::string_view(entry).substr(0, entry.find('='));
    return std::find(kFromOutside.begin(), kFromOutside.end(), name) == kFromOutside.end();
  });
}

void apply_own_part(const Prepare& own, Prepare& frame) {
  frame.directory = own.directory;
  frame.program = own.program;
  frame.environment = own.environment;
  frame.interfaces = own.interfaces;
  frame.binding = own.binding;
  if (!own.secret.empty()) frame.secret = own.secret;
  for (Prepare::Rank& rank : frame.ranks) keep_identity(rank.variables);
  if (!own.ranks.empty() && !frame.ranks.empty()) {
    auto& variables = frame.ranks.front().variables;
    variables = merge(own.ranks.front().variables, variables);
  }
}

Prepare read_own_part(int fd) {
  const std::string text = read_file(fmt::format("/proc/self/fd/{}", fd));
  ::close(fd);
  const Frame frame = decode(detail::bytes_of(text));
  if (const auto* own = std::get_if<Prepare>(&frame)) return *own;
  throw Error(Errc::protocol, "what this agent was started with is no Prepare");
}

}  // namespace hvd::launcher
