#include "job/attached_job.hpp"

#include <algorithm>
#include <iostream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include <hvd/core/internal/whole_number.hpp>

#include "base/exit_codes.hpp"
#include "base/text.hpp"
#include "job/job.hpp"
#include "job/report.hpp"

namespace hvd::launcher {
namespace {

using nlohmann::json;

/// The time between the signal of a user who interrupts the program and SIGKILL.
constexpr std::chrono::milliseconds kGrace{2'000};

struct Description {
  std::vector<HostSpec> hosts;
  std::vector<std::string> machines;
  std::vector<UniqueFd> streams;
  UniqueFd outcome;
  bool timestamps = false;
  std::size_t quoted_lines = Tail::kLines;
};

/// Takes over an inherited descriptor, which the children of this process do not inherit.
UniqueFd take_descriptor(int fd) {
  if (fd <= STDERR_FILENO || ::fcntl(fd, F_SETFD, FD_CLOEXEC) != 0) {
    throw LaunchError(kExitUsage, fmt::format("descriptor {} was not inherited", fd));
  }
  return UniqueFd(fd);
}

template <class Integer>
Integer whole_number(const json& in, const char* key) {
  const json& value = in.at(key);
  if (detail::is_whole<Integer>(value)) return value.get<Integer>();
  throw LaunchError(kExitUsage, fmt::format("'{}' of a job is {}, not a whole number in range", key,
                                            value.dump()));
}

Description read_description() {
  const std::string text{std::istreambuf_iterator<char>(std::cin), {}};
  try {
    const json read = json::parse(text);
    Description job;
    for (const json& agent : read.at("agents")) {
      job.hosts.push_back({.name = agent.at("name"), .slots = whole_number<int>(agent, "ranks")});
      if (job.hosts.back().slots < 1) throw LaunchError(kExitUsage, "an agent without ranks");
      job.machines.push_back(agent.at("machine"));
      job.streams.push_back(take_descriptor(whole_number<int>(agent, "stream")));
    }
    if (job.hosts.empty()) throw LaunchError(kExitUsage, "a job without agents");
    job.outcome = take_descriptor(whole_number<int>(read, "outcome"));
    job.timestamps = read.value("timestamps", false);
    if (read.contains("quoted_lines")) {
      job.quoted_lines = whole_number<std::size_t>(read, "quoted_lines");
    }
    return job;
  } catch (const json::exception& error) {
    throw LaunchError(kExitUsage,
                      fmt::format("the job is not described as it has to be: {}", error.what()));
  }
}

json outcome_of(const Job& job) {
  const Outcome& outcome = job.outcome();
  json told = {
      {"code", outcome.code}, {"rank", nullptr}, {"lost", false}, {"what", outcome.trouble}};
  const auto quote = [&](int rank) {
    told["quoted"] = rank;
    told["lines"] = json::array();
    for (const Tail::Line& line : job.tail(rank)) {
      told["lines"].push_back(fmt::format(
          "[{}]<{}>:{}", rank, line.stream == Stream::out ? "stdout" : "stderr", line.text));
    }
  };
  if (outcome.culprit) {
    const RankEnd& culprit = *outcome.culprit;
    std::string what = describe(culprit, job.location_of(culprit.rank));
    for (const RankEnd& other : outcome.others) {
      what += fmt::format("\nthen {}", describe(other, job.location_of(other.rank)));
    }
    told["rank"] = culprit.rank;
    told["what"] = what;
    quote(quoted_rank(outcome));
  } else if (!job.lost_ranks().empty()) {
    const int rank = job.lost_ranks().front();
    const RankLocation place = job.location_of(rank);
    told["rank"] = rank;
    told["lost"] = true;
    told["what"] = fmt::format("rank {} on {} (local {}, pid {}) was lost with its task", rank,
                               place.host, place.local_rank, place.pid);
    quote(rank);
  }
  return told;
}

}  // namespace

int run_attached() {
  Description description = read_description();
  Options options;
  options.program = {""};  // every agent has its own
  options.timestamps = description.timestamps;
  options.grace = kGrace;
  options.host_timeout =
      std::chrono::milliseconds{0};  // the program ends the streams of lost agents
  Plan plan = plan_ranks(description.hosts, description.machines);
  options.num_proc = static_cast<int>(plan.ranks.size());
  const bool several = std::any_of(plan.machines.begin(), plan.machines.end(),
                                   [](std::size_t machine) { return machine > 0; });
  ConnectedAgents agents;
  agents.streams = std::move(description.streams);
  agents.via = kViaTask;
  agents.several_machines = several;
  agents.secret_known = true;
  agents.quoted_lines = description.quoted_lines;
  Job job(std::move(options), std::move(plan), std::move(agents));
  const int code = job.run();
  const std::string text = outcome_of(job).dump(-1, ' ', false, json::error_handler_t::replace);
  std::string_view left = text;
  while (!left.empty()) {
    const ssize_t size = ::write(description.outcome.get(), left.data(), left.size());
    if (size < 0) refuse_system("cannot say how the job ended");
    left.remove_prefix(static_cast<std::size_t>(size));
  }
  return code;
}

}  // namespace hvd::launcher
