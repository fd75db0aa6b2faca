#include "cli/options.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <map>
#include <memory>
#include <string_view>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <hvd/core/internal/text.hpp>

#include "base/exit_codes.hpp"
#include "base/text.hpp"
#include "cli/binding_options.hpp"
#include "cli/config_words.hpp"
#include "plan/rank_environment.hpp"
#include "transport/frames.hpp"

namespace hvd::launcher {
namespace {

using std::chrono::milliseconds;

constexpr std::string_view kHostTimeout = "HVD_HOST_TIMEOUT_S";
constexpr std::string_view kInterfaces = "HVD_NETWORK_INTERFACES";
constexpr std::string_view kUseMpirun =
    "hvdrun does not run mpirun; programs of the library start under it directly: mpirun -np N "
    "program";

/// The options as CLI11 fills them in, before units and names are checked.
struct Raw {
  Options options;
  std::vector<std::string> exports;
  std::vector<std::string> mpi_launch_flags;
  std::string config_file;
  bool no_prefix = false;
};

struct HelpFormatter : CLI::Formatter {
  std::string make_usage(const CLI::App*, std::string) const override {
    return "Usage: hvdrun -np N [options] program [arguments]\n";
  }
};

struct Parser {
  CLI::App app{"Starts the ranks of an hvd program, watches them and ends them together.",
               "hvdrun"};
  Raw raw;

  void add_tuning();

  Parser() {
    Options& to = raw.options;
    const auto seconds = [this](const char* name, auto& time, const char* text) {
      app.add_option_function<std::string>(
             name, [name, &time](const std::string& value) { time = parse_seconds(name, value); },
             text)
          ->type_name("S");
    };
    app.formatter(std::make_shared<HelpFormatter>());
    app.set_help_flag();
    app.add_flag("-h,--help", to.help, "Print this text");
    app.add_option("--num-proc", raw.options.num_proc, "Number of ranks; also spelled -np")
        ->type_name("N")
        ->check(CLI::Range(1, 65'536));
    app.add_option("-H,--hosts", to.hosts, "Hosts and their slots, as in localhost:4")
        ->type_name("HOST[:SLOTS],...");
    app.add_option("--hostfile", to.hostfile, "The same from a file, a line 'host slots=n' each")
        ->type_name("FILE");
    app.add_option("-p,--ssh-port", to.ssh_port, "Port of sshd on the hosts")
        ->type_name("PORT")
        ->check(CLI::Range(1, 65'535));
    app.add_option("-i,--ssh-identity-file", to.ssh_identity_file, "Private key for ssh")
        ->type_name("FILE");
    app.add_option("--mpi-launch-flag", raw.mpi_launch_flags,
                   "'env NAME=VALUE' sets a variable of the ranks, as -x does")
        ->type_name("FLAG")
        ->allow_extra_args(false);
    app.add_option("--network-interfaces", to.interfaces,
                   "Names or blocks (eth0,10.0.0.0/8) of the network the ranks talk over")
        ->type_name("LIST");
    app.add_option("--launcher", to.launcher,
                   "What starts ranks on other hosts: auto, local, ssh or slurm [auto]")
        ->type_name("NAME")
        ->transform(
            CLI::CheckedTransformer(std::map<std::string, Launcher>{{"auto", Launcher::automatic},
                                                                    {"local", Launcher::local},
                                                                    {"ssh", Launcher::ssh},
                                                                    {"slurm", Launcher::slurm}})
                .description(""))
        ->transform(CLI::Validator(
            [](const std::string& name) {
              return std::string(name == "mpirun" ? kUseMpirun : std::string_view());
            },
            ""));
    add_binding_options(app, to.binding);
    app.add_option("-x", raw.exports, "Set a variable of the ranks, or pass hvdrun's own on")
        ->type_name("NAME[=VALUE]")
        ->allow_extra_args(false);
    app.add_option("--config-file", raw.config_file,
                   "Take options from a YAML file; those of the command line win")
        ->type_name("FILE");
    seconds("--grace", to.grace,
            "Seconds between a signal to hvdrun, which the ranks get, and SIGKILL [5]");
    seconds("--start-timeout", to.start_timeout,
            "Seconds until all ranks have started and found each other [30]");
    seconds("--timeout", to.timeout, "End the job after so many seconds, with exit code 124");
    app.add_option_function<std::string>(
           "--host-timeout",
           [this](const std::string& value) {
             raw.options.tuning.push_back({std::string(kHostTimeout), value});
           },
           "Seconds of silence between hosts that end the job: HVD_HOST_TIMEOUT_S [10]")
        ->type_name("S");
    app.add_option("--max-restarts", to.max_restarts,
                   "Start all ranks anew, up to N times, when one has failed [0]")
        ->type_name("N")
        ->check(CLI::Range(0, 1'000));
    app.add_flag("--no-prefix", raw.no_prefix, "Do not begin output lines with [rank]<stdout>:");
    app.add_flag("--prefix-output-with-timestamp", to.timestamps,
                 "Begin output lines with the time");
    app.add_option("--output-filename", to.output_directory,
                   "Write what ranks print to DIR/rank.N/stdout and stderr as well")
        ->type_name("DIR");
    add_tuning();
    add_elastic_options(app, to.elastic);
    add_node_options(app, to.node);
    app.add_flag("--status", to.status, "Say how the ranks get on: live on a terminal");
    seconds("--status-interval", to.status_interval,
            "Seconds between two such lines [1 on a terminal, else 10]");
    app.add_flag("--dry-run", to.dry_run, "Print the command of every rank and start nothing");
    app.add_flag("--check-build", to.check_build,
                 "Print what this build of hvd and this machine can do");
    app.add_flag("--verbose", to.verbose, "Say what hvdrun does");
    app.add_flag("--version", to.version, "Print the version of hvd");
  }
};

/// Returns the level of HVD_LOG for a level of horovodrun. Another text is returned in lower case.
std::string log_level_of(const std::string& text) {
  std::string word;
  for (const char c : text) word += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  constexpr std::array<std::pair<std::string_view, std::string_view>, 3> kOthers = {
      {{"trace", "debug"}, {"warning", "warn"}, {"fatal", "error"}}};
  for (const auto& [theirs, ours] : kOthers) {
    if (word == theirs) return std::string(ours);
  }
  return word;
}

/// Adds the options that have horovodrun's names and set variables of the ranks.
void Parser::add_tuning() {
  const auto option = [this](const char* name, const char* variable, const char* unit,
                             const char* suffix, const char* text) {
    app.add_option_function<std::string>(
           name,
           [this, variable, suffix](const std::string& value) {
             raw.options.tuning.push_back({variable, fmt::format("{}{}", value, suffix)});
           },
           text)
        ->type_name(unit);
  };
  option("--timeline-filename", "HVD_TIMELINE", "FILE", "", "Write what happens to every tensor");
  option("--fusion-threshold-mb", "HVD_FUSION_THRESHOLD", "MB", "M", "Bytes per fused operation");
  option("--autotune-log-file", "HVD_AUTOTUNE_LOG", "FILE", "", "Write what autotuning tried");
  app.add_option_function<std::string>(
         "--log-level",
         [this](const std::string& value) {
           raw.options.tuning.push_back({"HVD_LOG", log_level_of(value)});
         },
         "error, warn, info, plan or debug")
      ->type_name("LEVEL");
  option("--stall-check-warning-time-seconds", "HVD_STALL_WARN_S", "S", "",
         "Seconds until missing ranks are named");
  option("--stall-check-shutdown-time-seconds", "HVD_STALL_ABORT_S", "S", "",
         "Seconds until a stalled job fails");
  const auto flag = [this](const char* name, std::vector<ExportSpec> variables, const char* text) {
    app.add_flag_callback(
        name,
        [this, variables = std::move(variables)] {
          auto& tuning = raw.options.tuning;
          tuning.insert(tuning.end(), variables.begin(), variables.end());
        },
        text);
  };
  flag("--autotune", {{"HVD_AUTOTUNE", "1"}}, "Search for better bucket sizes");
  flag("--no-stall-check", {{"HVD_STALL_WARN_S", "0"}, {"HVD_STALL_ABORT_S", "0"}},
       "Wait for missing ranks without a word");
}

constexpr milliseconds kLeastStatusInterval{200};

/// Returns nothing if the text is no number of seconds.
std::optional<milliseconds> seconds_in(std::string_view text) {
  constexpr double kMost = 1e9;
  const auto value = detail::to_number<double>(text);
  if (!value || !std::isfinite(*value) || *value < 0.0 || *value > kMost) return std::nullopt;
  return milliseconds{static_cast<milliseconds::rep>(std::llround(*value * 1000.0))};
}

/// The variables with a rank's identity, which only hvdrun sets.
constexpr std::array<std::string_view, 17> kIdentity = {
    "HVD_RANK",       "HVD_SIZE",       "HVD_LOCAL_RANK",  "HVD_LOCAL_SIZE",
    "HVD_CROSS_RANK", "HVD_CROSS_SIZE", "HVD_JOB_ID",      "HVD_RESTART_COUNT",
    "HVD_STORE",      "HVD_SECRET_FD",  "HVD_SECRET_FILE", "HVD_STATUS_FD",
    "RANK",           "WORLD_SIZE",     "LOCAL_RANK",      "LOCAL_WORLD_SIZE",
    "GROUP_RANK"};

ExportSpec parse_export(const std::string& text) {
  const auto equals = text.find('=');
  ExportSpec spec{text.substr(0, equals), std::nullopt};
  if (equals != std::string::npos) spec.value = text.substr(equals + 1);
  const auto begins_name = [](char c) { return detail::is_letter(c) || c == '_'; };
  const auto in_name = [](char c) { return detail::is_alphanumeric(c) || c == '_'; };
  if (spec.name.empty() || !begins_name(spec.name.front()) ||
      !std::all_of(spec.name.begin(), spec.name.end(), in_name)) {
    throw LaunchError(kExitUsage,
                      fmt::format("-x {}: not the name of a variable", in_quotes(text)));
  }
  if (std::find(kIdentity.begin(), kIdentity.end(), spec.name) != kIdentity.end()) {
    throw LaunchError(kExitUsage, fmt::format("-x {}: hvdrun sets this one itself", spec.name));
  }
  return spec;
}

/// Accepts "env NAME=VALUE ...", the only launch flag that hvdrun can apply with every launcher.
void add_launch_flag(const std::string& text, std::vector<ExportSpec>& exports) {
  const std::vector<std::string> words = split_words(text);
  const bool all_set = words.size() > 1 && words.front() == "env" &&
                       std::all_of(words.begin() + 1, words.end(), [](const std::string& word) {
                         return word.find('=') != std::string::npos;
                       });
  if (!all_set) {
    throw LaunchError(kExitUsage, fmt::format("--mpi-launch-flag {}: expected 'env NAME=VALUE'",
                                              in_quotes(text)));
  }
  for (std::size_t i = 1; i < words.size(); ++i) exports.push_back(parse_export(words[i]));
}

/// Refuses options of horovodrun for which hvdrun has no equivalent.
void refuse_what_is_missing(const std::string& name) {
  if (name == "--mpi-args") {
    throw LaunchError(kExitUsage, fmt::format("--mpi-args: {}", kUseMpirun));
  }
  if (name == "--ray" || name.starts_with("--ray-")) {
    throw LaunchError(kExitUsage, fmt::format("{}: Ray is not supported", name));
  }
}

/// Finds where hvdrun's own options end, and spells each as "--name=value", so that CLI11 reads
/// values that begin with '-', and the single-dash -np, literally.
struct Split {
  std::vector<std::string> own;
  std::vector<std::string> program;
};

Split split_at_program(const CLI::App& app, const std::vector<std::string>& arguments) {
  Split split;
  std::size_t i = 0;
  for (; i < arguments.size(); ++i) {
    std::string argument = arguments[i];
    if (argument == "--") {
      ++i;
      break;
    }
    if (argument.size() < 2 || argument.front() != '-') break;
    std::string name = argument.substr(0, argument.find('='));
    if (name == "-np") name = "--num-proc";
    if (name.starts_with("--")) std::replace(name.begin(), name.end(), '_', '-');
    const CLI::Option* option = app.get_option_no_throw(name);
    if (option == nullptr) {
      refuse_what_is_missing(name);
      throw LaunchError(kExitUsage, fmt::format("unknown option {} (hvdrun --help lists them)",
                                                in_quotes(argument)));
    }
    const std::string& given = arguments[i];
    const bool has_value = given.find('=') != std::string::npos;
    const bool wants_value = option->get_items_expected_max() > 0;
    if (has_value && !wants_value) {
      throw LaunchError(kExitUsage, fmt::format("option {} takes no value", in_quotes(name)));
    }
    if (!wants_value) {
      split.own.push_back(name);
      continue;
    }
    if (!has_value && i + 1 == arguments.size()) {
      throw LaunchError(kExitUsage, fmt::format("option {} needs a value", in_quotes(given)));
    }
    std::string value = has_value ? argument.substr(argument.find('=') + 1) : arguments[++i];
    if (value.empty()) {
      throw LaunchError(kExitUsage, fmt::format("option {} needs a value", in_quotes(given)));
    }
    split.own.push_back(one_word(name, value));
  }
  split.program.assign(arguments.begin() + static_cast<std::ptrdiff_t>(i), arguments.end());
  return split;
}

/// Sets the timeout between hvdrun and its agents to the ranks' HVD_HOST_TIMEOUT_S. The -x option
/// overrides --host-timeout, which overrides hvdrun's own variable.
void settle_host_timeout(Options& options, const std::vector<std::string>& environment) {
  const Variables exported = exported_variables(options.exports, environment);
  const Variables chosen = exported_variables(options.tuning, environment);
  for (const Variables* const from : {&exported, &chosen, &environment}) {
    if (!contains(*from, kHostTimeout)) continue;
    const std::string_view value = value_of(*from, kHostTimeout);
    const auto time = seconds_in(value);
    if (!time || *time < kLeastHostTimeout) {
      throw LaunchError(kExitUsage, fmt::format("{} {}: expected 2 seconds or more",
                                                from == &chosen ? "--host-timeout" : kHostTimeout,
                                                in_quotes(value)));
    }
    options.host_timeout = *time;
    return;
  }
}

bool runs_something(const Options& options) {
  return !options.help && !options.version && !options.check_build;
}

}  // namespace

Options parse_options(const std::vector<std::string>& arguments,
                      const std::vector<std::string>& environment) {
  Parser parser;
  Split split = split_at_program(parser.app, arguments);
  const ConfigWords file = read_config_words(parser.app, split.own);
  split.own.insert(split.own.begin(), file.words.begin(), file.words.end());
  try {
    std::reverse(split.own.begin(), split.own.end());  // the order CLI11's vector form takes
    parser.app.parse(std::move(split.own));
  } catch (const CLI::ParseError& error) {
    const std::string complaint = error.what();
    throw LaunchError(kExitUsage, fmt::format("{}{}", complaint, file.origin_of(complaint)));
  }

  Options options = std::move(parser.raw.options);
  options.prefix = !parser.raw.no_prefix;
  for (const std::string& text : parser.raw.exports) options.exports.push_back(parse_export(text));
  for (const std::string& text : parser.raw.mpi_launch_flags) {
    add_launch_flag(text, options.exports);
  }
  if (options.status_interval) {
    if (*options.status_interval < kLeastStatusInterval) {
      throw LaunchError(kExitUsage, "--status-interval: expected 0.2 seconds or more");
    }
    options.status = true;
  }
  options.program = std::move(split.program);

  if (runs_something(options)) {
    settle_host_timeout(options, environment);
    settle_node_mode(options, environment);
    settle_elastic_job(parser.app, options);
    if (options.num_proc == 0 && !options.node.given()) {
      throw LaunchError(kExitUsage, "-np N, the number of ranks, is missing");
    }
    if (options.program.empty() || options.program.front().empty()) {
      throw LaunchError(kExitUsage,
                        "no program to run (hvdrun -np N [options] program [arguments])");
    }
    if (!options.hosts.empty() && !options.hostfile.empty()) {
      throw LaunchError(kExitUsage, "--hosts and --hostfile exclude each other");
    }
    if (options.timestamps && !options.prefix) {
      throw LaunchError(kExitUsage,
                        "--no-prefix and --prefix-output-with-timestamp exclude each other");
    }
  }
  return options;
}

milliseconds parse_seconds(const char* option, std::string_view text) {
  if (const auto time = seconds_in(text)) return *time;
  throw CLI::ValidationError(
      fmt::format("{} {}: expected seconds, 0 or more", option, in_quotes(text)));
}

std::string help_text() { return Parser().app.help(); }

Variables option_variables(const Options& options) {
  Variables variables = exported_variables(options.tuning, {});
  if (options.start_timeout) {
    const std::chrono::duration<double> seconds = *options.start_timeout;
    variables.push_back(fmt::format("HVD_START_TIMEOUT={}", seconds.count()));
  }
  if (!options.interfaces.empty()) {
    variables.push_back(fmt::format("{}={}", kInterfaces, options.interfaces));
  }
  return variables;
}

std::string chosen_interfaces(const Options& options, const std::vector<std::string>& environment) {
  const Variables exported = exported_variables(options.exports, environment);
  if (contains(exported, kInterfaces)) return std::string(value_of(exported, kInterfaces));
  if (!options.interfaces.empty()) return options.interfaces;
  return std::string(value_of(environment, kInterfaces));
}

}  // namespace hvd::launcher
