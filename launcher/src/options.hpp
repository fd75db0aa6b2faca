// The command line of hvdrun.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace hvd::launcher {

/// "-x NAME=VALUE", or "-x NAME": as hvdrun's own environment has it.
struct ExportSpec {
  std::string name;
  std::optional<std::string> value;
};

/// What starts the ranks of other hosts.
enum class Launcher { automatic, local, ssh, slurm, mpirun };

struct Options {
  int num_proc = 0;
  Launcher launcher = Launcher::automatic;
  std::string hosts;     ///< as typed; empty: this host with as many slots as ranks
  std::string hostfile;  ///< a path; empty: none
  int ssh_port = 0;      ///< 0: as ssh's configuration says
  std::string ssh_identity_file;
  std::string mpi_args;    ///< words for mpirun, separated by blanks
  std::string interfaces;  ///< of the ranks' network; empty: their own choice
  std::vector<ExportSpec> exports;
  std::vector<ExportSpec> tuning;  ///< variables that tuning options stand for, with values

  bool prefix = true;
  bool timestamps = false;
  std::string output_directory;  ///< empty: none

  std::chrono::milliseconds grace{5'000};
  std::optional<std::chrono::milliseconds> start_timeout;
  std::optional<std::chrono::milliseconds> timeout;  ///< of the whole job

  int max_restarts = 0;   ///< how often a job that lost a rank is started anew
  int restart_count = 0;  ///< how often this one was

  bool verbose = false;
  bool dry_run = false;
  bool check_build = false;
  bool version = false;
  bool help = false;

  std::vector<std::string> program;  ///< its name and its arguments

  static constexpr std::chrono::milliseconds kDefaultStartTimeout{30'000};
};

/// Options end at the program's name, or after "--". Throws LaunchError (usage) with one line that
/// names what is wrong. `arguments` are those after hvdrun's own name.
[[nodiscard]] Options parse_options(const std::vector<std::string>& arguments);

/// What --help prints.
[[nodiscard]] std::string help_text();

}  // namespace hvd::launcher
