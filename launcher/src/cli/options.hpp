// The command line of hvdrun.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "node/node_options.hpp"

namespace hvd::launcher {

/// "-x NAME=VALUE", or "-x NAME": as hvdrun's own environment has it.
struct ExportSpec {
  std::string name;
  std::optional<std::string> value;
};

/// What starts the ranks of other hosts.
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
  std::vector<ExportSpec> tuning;  ///< variables that tuning options stand for, with values

  bool prefix = true;
  bool timestamps = false;
  std::string output_directory;  ///< empty: none

  std::chrono::milliseconds grace{5'000};
  std::optional<std::chrono::milliseconds> start_timeout;
  std::optional<std::chrono::milliseconds> timeout;  ///< of the whole job
  /// How long a host may be silent: -x HVD_HOST_TIMEOUT_S, --host-timeout or hvdrun's own variable.
  std::chrono::milliseconds host_timeout{10'000};

  int max_restarts = 0;   ///< how often a job that lost a rank is started anew
  int restart_count = 0;  ///< how often this one was

  bool status = false;  ///< say from time to time how the ranks get on
  std::optional<std::chrono::milliseconds> status_interval;

  bool verbose = false;
  bool dry_run = false;
  bool check_build = false;
  bool version = false;
  bool help = false;

  NodeOptions node;  ///< of a node's own hvdrun

  std::vector<std::string> program;  ///< its name and its arguments

  static constexpr std::chrono::milliseconds kDefaultStartTimeout{30'000};
};

/// Options end at the program's name, or after "--". Throws LaunchError (usage) with one line that
/// names what is wrong. `arguments` are those after hvdrun's own name. Reads the file that
/// --config-file names; what the command line says wins over it. `environment` is
/// hvdrun's own, for a platform's variables.
[[nodiscard]] Options parse_options(const std::vector<std::string>& arguments,
                                    const std::vector<std::string>& environment = {});

/// What hvdrun's own options mean to every rank, however it is started: "NAME=value" each. -x wins
/// over it.
[[nodiscard]] std::vector<std::string> option_variables(const Options& options);

/// What --help prints.
[[nodiscard]] std::string help_text();

}  // namespace hvd::launcher
