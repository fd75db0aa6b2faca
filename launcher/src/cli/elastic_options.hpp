// Holds the options of an elastic job, whose ranks come and go, and checks them.
#pragma once

#include <chrono>
#include <optional>
#include <string>

namespace CLI {
class App;
}

namespace hvd::launcher {

struct Options;

/// The options of an elastic job, which have the names and meanings of horovodrun's. Only the range
/// of cooldowns is written otherwise, as one word.
struct ElasticOptions {
  /// The largest value of `max_np`, and its default where a script lists the hosts.
  static constexpr int kMostRanks = 65'536;

  int min_np = 0;                ///< 0: not given
  int max_np = 0;                ///< 0: not given
  std::string discovery_script;  ///< a command for the shell; empty: the hosts do not change
  int slots_per_host = 0;        ///< of hosts that the script lists without a number; 0: not given
  /// The time that hvdrun waits for `min_np` workers.
  std::chrono::milliseconds timeout{600'000};
  std::optional<int> reset_limit;  ///< the most generations after the first
  /// The time that a host which has failed gets no new worker: at first, and at most.
  std::chrono::milliseconds least_cooldown{1'000};
  std::chrono::milliseconds most_cooldown{3'600'000};

  /// Returns whether the job is elastic.
  [[nodiscard]] bool given() const { return min_np > 0 || max_np > 0 || !discovery_script.empty(); }
};

/// Adds the options to `app`. A wrong value is a CLI::ParseError that names the option.
void add_elastic_options(CLI::App& app, ElasticOptions& to);

/// In an elastic job, gives -np, --min-np and --max-np their defaults: each of the first two is the
/// other, and the third is -np, or no limit if a script lists the hosts. Refuses options that
/// exclude an elastic job, or that only one has. `app` has parsed the options. Throws LaunchError
/// (usage).
void settle_elastic_job(const CLI::App& app, Options& options);

}  // namespace hvd::launcher
