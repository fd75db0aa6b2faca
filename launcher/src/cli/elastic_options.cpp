#include "cli/elastic_options.hpp"

#include <array>
#include <string_view>
#include <utility>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "base/exit_codes.hpp"
#include "base/text.hpp"
#include "cli/options.hpp"

namespace hvd::launcher {
namespace {

constexpr const char* kTimeout = "--elastic-timeout";
constexpr const char* kSlots = "--slots-per-host";
constexpr const char* kResetLimit = "--reset-limit";
constexpr const char* kCooldown = "--blacklist-cooldown-range";

[[noreturn]] void refuse_use(const std::string& why) { throw LaunchError(kExitUsage, why); }

void parse_cooldown(std::string_view text, ElasticOptions& to) {
  const auto comma = text.find(',');
  if (comma == std::string_view::npos) {
    throw CLI::ValidationError(fmt::format("{} {}: expected two numbers of seconds, as in 1,60",
                                           kCooldown, in_quotes(text)));
  }
  to.least_cooldown = parse_seconds(kCooldown, text.substr(0, comma));
  to.most_cooldown = parse_seconds(kCooldown, text.substr(comma + 1));
  if (to.least_cooldown <= to.most_cooldown) return;
  throw CLI::ValidationError(
      fmt::format("{} {}: the first is larger than the second", kCooldown, in_quotes(text)));
}

/// Refuses options that an elastic job does not have.
void refuse_others(const Options& options) {
  const std::array<std::pair<bool, const char*>, 3> excluded = {{
      {options.max_restarts > 0, "--max-restarts"},
      {options.node.given(), "an option of a node (--nnodes, --node-rank, --nproc-per-node, …)"},
      {options.dry_run, "--dry-run"},
  }};
  for (const auto& [given, name] : excluded) {
    if (given) refuse_use(fmt::format("{}: not in an elastic job", name));
  }
  if (options.elastic.discovery_script.empty()) return;
  if (!options.hosts.empty() || !options.hostfile.empty()) {
    refuse_use("--host-discovery-script excludes --hosts and --hostfile");
  }
  if (options.launcher == Launcher::slurm) {
    refuse_use("--host-discovery-script excludes --launcher slurm");
  }
}

}  // namespace

void add_elastic_options(CLI::App& app, ElasticOptions& to) {
  const char* const group = "Elastic jobs: ranks come and go";
  const CLI::Range ranks(1, ElasticOptions::kMostRanks);
  app.add_option("--min-np,--min-num-proc", to.min_np, "The fewest ranks that train [-np]")
      ->type_name("N")
      ->check(ranks)
      ->group(group);
  app.add_option("--max-np,--max-num-proc", to.max_np,
                 "The most ranks [-np; with a script, as many as there are slots]")
      ->type_name("N")
      ->check(ranks)
      ->group(group);
  app.add_option("--host-discovery-script", to.discovery_script,
                 "Prints a line HOST or HOST:SLOTS for each host; run each second")
      ->type_name("COMMAND")
      ->group(group);
  app.add_option(kSlots, to.slots_per_host, "Slots of hosts that it prints without them [1]")
      ->type_name("N")
      ->check(ranks)
      ->group(group);
  app.add_option_function<std::string>(
         kTimeout, [&to](const std::string& text) { to.timeout = parse_seconds(kTimeout, text); },
         "Seconds to wait for --min-np ranks [600]")
      ->type_name("S")
      ->group(group);
  app.add_option(kResetLimit, to.reset_limit, "How often the set of ranks may change")
      ->type_name("N")
      ->check(CLI::Range(0, 1'000'000))
      ->group(group);
  app.add_option_function<std::string>(
         kCooldown, [&to](const std::string& text) { parse_cooldown(text, to); },
         "Seconds until a host on which a rank failed gets a new one, at first and at most "
         "[1,3600]")
      ->type_name("LO,HI")
      ->group(group);
}

void settle_elastic_job(const CLI::App& app, Options& options) {
  ElasticOptions& to = options.elastic;
  if (!to.given()) {
    for (const char* const name : {kTimeout, kSlots, kResetLimit, kCooldown}) {
      if (app.count(name) == 0) continue;
      refuse_use(
          fmt::format("{}: only in an elastic job, which --min-np, --max-np or "
                      "--host-discovery-script makes",
                      name));
    }
    return;
  }
  refuse_others(options);
  const bool discovers = !to.discovery_script.empty();
  if (to.slots_per_host > 0 && !discovers) {
    refuse_use(fmt::format("{}: only with --host-discovery-script", kSlots));
  }
  if (options.num_proc == 0) options.num_proc = to.min_np;
  if (options.num_proc == 0) return;  // the caller asks for -np
  if (to.min_np == 0) to.min_np = options.num_proc;
  if (to.max_np == 0) to.max_np = discovers ? ElasticOptions::kMostRanks : options.num_proc;
  if (to.slots_per_host == 0) to.slots_per_host = 1;
  if (to.min_np <= options.num_proc && options.num_proc <= to.max_np) return;
  refuse_use(fmt::format("-np {} is not between --min-np {} and --max-np {}", options.num_proc,
                         to.min_np, to.max_np));
}

}  // namespace hvd::launcher
