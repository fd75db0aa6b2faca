// Parses the command line of hvdrun.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/elastic_options.hpp"
#include "node/node_options.hpp"
#include "plan/binding.hpp"

namespace hvd::launcher {

/// The option "-x NAME=VALUE", or "-x NAME", which takes the value from hvdrun's own environment.
struct ExportSpec {
  std::string name;
  std::optional<std::string> value;
};

/// Selects the program that starts the ranks of other hosts.
enum class Launcher { automatic, local, ssh, slurm };

struct Options {
  int num_proc = 0;
  Launcher launcher = Launcher::automatic;
  std::string hosts;     ///< as typed; empty: this host with as many slots as ranks
  std::string hostfile;  ///< a path; empty: none
  int ssh_port = 0;      ///< 0: as ssh's configuration says
  std::string ssh_identity_file;
  std::string interfaces;  ///< of the ranks' network; empty: their own choice
  std::vector<ExportSpec> exports;
  std::vector<ExportSpec> tuning;  ///< variables that tuning options set, with values

  bool prefix = true;
  bool timestamps = false;
  std::string output_directory;  ///< empty: none

  std::chrono::milliseconds grace{5'000};
  std::optional<std::chrono::milliseconds> start_timeout;
  std::optional<std::chrono::milliseconds> timeout;  ///< the greatest duration of the whole job
  /// The time that a host may be silent, from -x HVD_HOST_TIMEOUT_S, --host-timeout or hvdrun's own
  /// variable.
  std::chrono::milliseconds host_timeout{10'000};

  int max_restarts = 0;   ///< the restarts that are allowed for a job that loses ranks
  int restart_count = 0;  ///< the restarts of this job so far

  bool status = false;  ///< print the progress of the ranks from time to time
  std::optional<std::chrono::milliseconds> status_interval;

  bool verbose = false;
  bool dry_run = false;
  bool check_build = false;
  bool version = false;
  bool help = false;

  BindingOptions binding;

  NodeOptions node;  ///< the options of node mode
  ElasticOptions elastic;

  std::vector<std::string> program;  ///< its name and its arguments

  static constexpr std::chrono::milliseconds kDefaultStartTimeout{30'000};
  [[nodiscard]] std::chrono::milliseconds start_timeout_or_default() const {
    return start_timeout.value_or(kDefaultStartTimeout);
  }
};

/// Parses hvdrun's arguments after its own name. Options end at the program's name, or after "--".
/// Reads the file that --config-file names; options on the command line override it. `environment`
/// is hvdrun's own, for the host timeout and a platform's variables. Throws LaunchError (usage)
/// with one line that names what is wrong.
[[nodiscard]] Options parse_options(const std::vector<std::string>& arguments,
                                    const std::vector<std::string>& environment = {});

/// Returns the variables ("NAME=value") that hvdrun's own options set for every rank. -x overrides
/// them.
[[nodiscard]] std::vector<std::string> option_variables(const Options& options);

/// Returns the network that the ranks use, in the form in which they read it from their
/// environment: that of -x, of --network-interfaces or of `environment`. Empty: it is their own
/// choice.
[[nodiscard]] std::string chosen_interfaces(const Options& options,
                                            const std::vector<std::string>& environment);

/// Parses the value of `option`, a number of seconds. Throws CLI::ValidationError.
[[nodiscard]] std::chrono::milliseconds parse_seconds(const char* option, std::string_view text);

/// Returns what --help prints.
[[nodiscard]] std::string help_text();

}  // namespace hvd::launcher
