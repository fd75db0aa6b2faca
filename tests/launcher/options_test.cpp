#include "cli/options.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/exit_codes.hpp"

namespace hvd::launcher {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::HasSubstr;
using Words = std::vector<std::string>;

std::string complaint(const Words& arguments) {
  try {
    (void)parse_options(arguments);
  } catch (const LaunchError& error) {
    EXPECT_EQ(error.code(), kExitUsage);
    EXPECT_THAT(error.what(), testing::Not(HasSubstr("\n")));
    return error.what();
  }
  ADD_FAILURE() << "accepted";
  return "";
}

TEST(OptionsTest, DefaultsAreThoseOfTheHelp) {
  const Options options = parse_options({"-np", "2", "./train"});
  EXPECT_EQ(options.num_proc, 2);
  EXPECT_EQ(options.hosts, "");
  EXPECT_EQ(options.grace, milliseconds{5000});
  EXPECT_FALSE(options.start_timeout);
  EXPECT_EQ(Options::kDefaultStartTimeout, milliseconds{30'000});
  EXPECT_FALSE(options.timeout);
  EXPECT_EQ(options.host_timeout, milliseconds{10'000});
  EXPECT_TRUE(options.prefix);
  EXPECT_FALSE(options.timestamps);
  EXPECT_FALSE(options.verbose);
  EXPECT_THAT(options.program, ElementsAre("./train"));
}

TEST(OptionsTest, EveryOption) {
  const Options options = parse_options({"--num-proc=3",
                                         "-H",
                                         "localhost:3",
                                         "--grace",
                                         "0.5",
                                         "--start-timeout=7",
                                         "--timeout",
                                         "60",
                                         "--host-timeout",
                                         "2.5",
                                         "--max-restarts",
                                         "2",
                                         "--launcher",
                                         "slurm",
                                         "-p",
                                         "2222",
                                         "-i",
                                         "key",
                                         "--network-interfaces",
                                         "eth0",
                                         "--prefix-output-with-timestamp",
                                         "--output-filename",
                                         "logs",
                                         "-x",
                                         "A=1",
                                         "-x",
                                         "B",
                                         "-x",
                                         "C=",
                                         "--verbose",
                                         "./train"});
  EXPECT_EQ(options.num_proc, 3);
  EXPECT_EQ(options.hosts, "localhost:3");
  EXPECT_EQ(options.grace, milliseconds{500});
  EXPECT_EQ(options.start_timeout, milliseconds{7000});
  EXPECT_EQ(options.timeout, milliseconds{60'000});
  EXPECT_EQ(options.host_timeout, milliseconds{2500});
  EXPECT_EQ(options.tuning.at(0).name, "HVD_HOST_TIMEOUT_S");
  EXPECT_EQ(options.max_restarts, 2);
  EXPECT_EQ(options.launcher, Launcher::slurm);
  EXPECT_EQ(options.ssh_port, 2222);
  EXPECT_EQ(options.ssh_identity_file, "key");
  EXPECT_EQ(options.interfaces, "eth0");
  EXPECT_TRUE(options.timestamps);
  EXPECT_EQ(options.output_directory, "logs");
  EXPECT_TRUE(options.verbose);
  ASSERT_EQ(options.exports.size(), 3U);
  EXPECT_EQ(options.exports[0].name, "A");
  EXPECT_EQ(options.exports[0].value, "1");
  EXPECT_EQ(options.exports[1].value, std::nullopt);
  EXPECT_EQ(options.exports[2].value, "");
}

TEST(OptionsTest, TheHostTimeoutIsWhatTheRanksFind) {
  const auto timeout = [](std::vector<std::string> options, const std::string& own) {
    options.insert(options.end(), {"-np", "1", "true"});
    return parse_options(options, {"HVD_HOST_TIMEOUT_S=" + own}).host_timeout;
  };
  EXPECT_EQ(timeout({}, "3"), milliseconds{3000});
  EXPECT_EQ(timeout({"--host-timeout", "4"}, "3"), milliseconds{4000});
  EXPECT_EQ(timeout({"--host-timeout", "4", "-x", "HVD_HOST_TIMEOUT_S=5"}, "3"),
            milliseconds{5000});
  EXPECT_EQ(timeout({"-x", "HVD_HOST_TIMEOUT_S=4", "-x", "HVD_HOST_TIMEOUT_S=5"}, "3"),
            milliseconds{5000});  // the ranks get the last one too
  EXPECT_EQ(timeout({"-x", "HVD_HOST_TIMEOUT_S"}, "3"), milliseconds{3000});
  for (const char* bad : {"1.9", "0", "-1", "x", "3s", "nan", "1e12"}) {
    EXPECT_THAT(complaint({"-np", "1", "--host-timeout", bad, "true"}), HasSubstr("--host-timeout"))
        << bad;
    EXPECT_THAT(complaint({"-np", "1", "-x", std::string("HVD_HOST_TIMEOUT_S=") + bad, "true"}),
                HasSubstr("HVD_HOST_TIMEOUT_S"))
        << bad;
  }
}

TEST(OptionsTest, StopAtTheProgram) {
  const Options options =
      parse_options({"-np", "1", "./train", "-np", "9", "--verbose", "--", "-x"});
  EXPECT_EQ(options.num_proc, 1);
  EXPECT_FALSE(options.verbose);
  EXPECT_THAT(options.program, ElementsAre("./train", "-np", "9", "--verbose", "--", "-x"));
}

TEST(OptionsTest, TwoDashesEndTheOptions) {
  EXPECT_THAT(parse_options({"-np", "1", "--", "--odd-name", "x"}).program,
              ElementsAre("--odd-name", "x"));
}

TEST(OptionsTest, ExportedValuesMayContainAnything) {
  const Options options = parse_options({"-np", "1", "-x", "A=-b=c d\n", "true"});
  EXPECT_EQ(options.exports.at(0).value, "-b=c d\n");
}

TEST(OptionsTest, InformationNeedsNoProgram) {
  EXPECT_TRUE(parse_options({"--help"}).help);
  EXPECT_TRUE(parse_options({"--version"}).version);
  EXPECT_TRUE(parse_options({"--check-build"}).check_build);
}

TEST(OptionsTest, HelpNamesTheOptions) {
  const std::string help = help_text();
  for (const char* option : {"-np",
                             "--num-proc",
                             "-H",
                             "--hosts",
                             "-x",
                             "--grace",
                             "--start-timeout",
                             "--timeout",
                             "--host-timeout",
                             "--no-prefix",
                             "--hostfile",
                             "--ssh-port",
                             "--ssh-identity-file",
                             "--network-interfaces",
                             "--bind-to",
                             "--map-by",
                             "--prefix-output-with-timestamp",
                             "--output-filename",
                             "--dry-run",
                             "--check-build",
                             "--verbose",
                             "--version",
                             "--help"}) {
    EXPECT_THAT(help, HasSubstr(option));
  }
}

TEST(OptionsTest, TuningOptionsAreVariables) {
  const Options options = parse_options(
      {"-np", "1", "--timeline-filename", "t.json", "--fusion-threshold-mb", "32", "--autotune",
       "--autotune-log-file", "a.csv", "--log-level", "plan", "--no-stall-check", "x"});
  std::string all;
  for (const ExportSpec& spec : options.tuning) all += spec.name + "=" + *spec.value + " ";
  for (const char* one : {"HVD_TIMELINE=t.json ", "HVD_FUSION_THRESHOLD=32M ", "HVD_AUTOTUNE=1 ",
                          "HVD_AUTOTUNE_LOG=a.csv ", "HVD_LOG=plan ", "HVD_STALL_WARN_S=0 "}) {
    EXPECT_THAT(all, HasSubstr(one));
  }
}

TEST(OptionsTest, LogLevelsOfHorovodrunAreThoseOfHvd) {
  const auto level = [](const char* text) {
    return parse_options({"-np", "1", "--log-level", text, "x"}).tuning.front().value;
  };
  EXPECT_EQ(level("INFO"), "info");
  EXPECT_EQ(level("WARNING"), "warn");
  EXPECT_EQ(level("TRACE"), "debug");
  EXPECT_EQ(level("FATAL"), "error");
  EXPECT_EQ(level("plan"), "plan");
}

TEST(OptionsTest, BindingHasMpirunsWords) {
  const auto binding = [](std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"-np", "1", "x"});
    return parse_options(arguments).binding;
  };
  EXPECT_EQ(binding({}), BindingOptions{});
  EXPECT_FALSE(binding({}).requested());
  EXPECT_EQ(binding({"--bind-to", "auto"}), (BindingOptions{.to = BindTo::automatic}));
  EXPECT_EQ(binding({"--bind-to", "core"}), (BindingOptions{.to = BindTo::core}));
  EXPECT_EQ(binding({"--bind-to=numa", "--map-by", "numa"}),
            (BindingOptions{.to = BindTo::numa, .by = MapBy::numa}));
  EXPECT_EQ(binding({"--map-by", "core:PE=4"}), (BindingOptions{.by = MapBy::core, .cores = 4}));
  EXPECT_TRUE(binding({"--map-by", "core:pe=4"}).requested());
  EXPECT_FALSE(binding({"--map-by", "numa", "--bind-to", "none"}).requested());
  for (const char* wrong : {"node", "core:", "core:PE", "core:PE=", "core:PE=x", "core:PE=-1",
                            "core:PE=65537", "numa:core"}) {
    EXPECT_THAT(complaint({"-np", "1", "--map-by", wrong, "x"}),
                HasSubstr(std::string("--map-by '") + wrong + "': expected "));
  }
  EXPECT_THAT(complaint({"-np", "1", "--bind-to", "l3cache", "x"}),
              HasSubstr("--bind-to 'l3cache': expected auto, core, numa or none"));
}

TEST(OptionsTest, TheLaunchFlagSetsVariables) {
  const Options options = parse_options(
      {"-np", "1", "--mpi-launch-flag", "env A=1 B=2", "--mpi-launch-flag", " env  C= ", "x"});
  ASSERT_EQ(options.exports.size(), 3U);
  EXPECT_EQ(options.exports[1].name, "B");
  EXPECT_EQ(options.exports[1].value, "2");
  EXPECT_EQ(options.exports[2].value, "");
  for (const char* flag : {"A=1", "env", "env A", "-x A=1", "env A=1 --foo", " "}) {
    EXPECT_THAT(complaint({"-np", "1", "--mpi-launch-flag", flag, "x"}), HasSubstr(flag));
  }
  EXPECT_THAT(complaint({"-np", "1", "--mpi-launch-flag", "env 1A=2", "x"}), HasSubstr("'1A=2'"));
  EXPECT_THAT(complaint({"-np", "1", "--mpi-launch-flag", "env HVD_RANK=1", "x"}),
              HasSubstr("HVD_RANK"));
}

TEST(OptionsTest, StatusHasAnInterval) {
  EXPECT_FALSE(parse_options({"-np", "1", "x"}).status);
  EXPECT_TRUE(parse_options({"-np", "1", "--status", "x"}).status);
  const Options options = parse_options({"-np", "1", "--status-interval", "0.5", "x"});
  EXPECT_TRUE(options.status);
  EXPECT_EQ(options.status_interval, milliseconds{500});
  EXPECT_THAT(complaint({"-np", "1", "--status-interval", "0", "x"}), HasSubstr("0.2"));
}

ElasticOptions elastic(Words arguments) {
  arguments.emplace_back("x");
  return parse_options(arguments).elastic;
}

TEST(OptionsTest, AJobIsElasticWhenItsNumberOfRanksMayChange) {
  EXPECT_FALSE(elastic({"-np", "2"}).given());
  EXPECT_TRUE(elastic({"-np", "2", "--min-np", "2"}).given());
  EXPECT_TRUE(elastic({"-np", "2", "--max-np", "2"}).given());
  EXPECT_TRUE(elastic({"-np", "2", "--host-discovery-script", "./hosts"}).given());
}

TEST(OptionsTest, EveryElasticOption) {
  const ElasticOptions options =
      elastic({"-np", "3", "--min-num-proc", "2", "--max-num-proc", "5", "--host-discovery-script",
               "./hosts -a", "--slots-per-host", "4", "--elastic-timeout", "7.5", "--reset-limit",
               "0", "--blacklist-cooldown-range", "0.5,60"});
  EXPECT_EQ(options.min_np, 2);
  EXPECT_EQ(options.max_np, 5);
  EXPECT_EQ(options.discovery_script, "./hosts -a");
  EXPECT_EQ(options.slots_per_host, 4);
  EXPECT_EQ(options.timeout, milliseconds{7'500});
  EXPECT_EQ(options.reset_limit, 0);
  EXPECT_EQ(options.least_cooldown, milliseconds{500});
  EXPECT_EQ(options.most_cooldown, milliseconds{60'000});
}

TEST(OptionsTest, NumbersOfRanksHaveDefaults) {
  EXPECT_EQ(parse_options({"--min-np", "2", "--max-np", "3", "x"}).num_proc, 2);
  EXPECT_EQ(elastic({"-np", "3", "--min-np", "2"}).max_np, 3);
  EXPECT_EQ(elastic({"-np", "3", "--max-np", "4"}).min_np, 3);
  const ElasticOptions discovers = elastic({"-np", "3", "--host-discovery-script", "./hosts"});
  EXPECT_EQ(discovers.min_np, 3);
  EXPECT_EQ(discovers.max_np, ElasticOptions::kMostRanks);
  EXPECT_EQ(discovers.slots_per_host, 1);
  EXPECT_EQ(discovers.timeout, milliseconds{600'000});
  EXPECT_FALSE(discovers.reset_limit);
  EXPECT_EQ(discovers.least_cooldown, milliseconds{1'000});
  EXPECT_EQ(discovers.most_cooldown, milliseconds{3'600'000});
}

TEST(OptionsTest, WrongElasticOptionsAreNamed) {
  const auto wrong = [](Words arguments) {
    arguments.insert(arguments.begin(), {"-np", "3"});
    arguments.emplace_back("x");
    return complaint(arguments);
  };
  EXPECT_THAT(wrong({"--min-np", "4"}), HasSubstr("-np 3"));
  EXPECT_THAT(wrong({"--max-np", "2"}), HasSubstr("--max-np 2"));
  EXPECT_THAT(wrong({"--min-np", "0"}), HasSubstr("--min-np"));
  EXPECT_THAT(wrong({"--min-np", "2", "--elastic-timeout", "soon"}),
              HasSubstr("--elastic-timeout 'soon'"));
  for (const char* range : {"1", "1,2,3", "2,1", "x,1", ",1", "-1,2"}) {
    EXPECT_THAT(wrong({"--min-np", "2", "--blacklist-cooldown-range", range}),
                HasSubstr("--blacklist-cooldown-range"))
        << range;
  }
  EXPECT_THAT(complaint({"--max-np", "2", "x"}), HasSubstr("-np N"));
}

TEST(OptionsTest, WhatOnlyAnElasticJobHasIsRefusedElsewhere) {
  for (const char* option : {"--elastic-timeout", "--reset-limit", "--slots-per-host"}) {
    EXPECT_THAT(complaint({"-np", "2", option, "2", "x"}),
                testing::AllOf(HasSubstr(option), HasSubstr("only in an elastic job")));
  }
  EXPECT_THAT(complaint({"-np", "2", "--blacklist-cooldown-range", "1,2", "x"}),
              HasSubstr("only in an elastic job"));
  EXPECT_THAT(complaint({"-np", "2", "--min-np", "1", "--slots-per-host", "2", "x"}),
              HasSubstr("only with --host-discovery-script"));
}

TEST(OptionsTest, WhatAnElasticJobExcludesIsRefused) {
  const auto refusal = [](Words arguments) {
    arguments.insert(arguments.begin(), {"--min-np", "2"});
    arguments.emplace_back("x");
    return complaint(arguments);
  };
  EXPECT_THAT(refusal({"--max-restarts", "1"}), HasSubstr("--max-restarts"));
  EXPECT_THAT(refusal({"--dry-run"}), HasSubstr("--dry-run"));
  EXPECT_THAT(refusal({"--nnodes", "2"}), HasSubstr("--nnodes"));
  for (const char* hosts : {"--hosts", "--hostfile"}) {
    EXPECT_THAT(refusal({"--host-discovery-script", "./hosts", hosts, "a"}), HasSubstr(hosts));
  }
  EXPECT_THAT(refusal({"--host-discovery-script", "./hosts", "--launcher", "slurm"}),
              HasSubstr("--launcher slurm"));
}

TEST(OptionsTest, WhatIsNotSupportedIsRefusedByName) {
  EXPECT_THAT(complaint({"-np", "2", "--ray", "x"}), HasSubstr("Ray is not supported"));
  EXPECT_THAT(complaint({"-np", "2", "--launcher", "mpirun", "x"}), HasSubstr("mpirun -np N"));
  EXPECT_THAT(complaint({"-np", "2", "--mpi-args", "-v", "x"}), HasSubstr("mpirun -np N"));
}

TEST(OptionsTest, MistakesAreNamed) {
  EXPECT_THAT(complaint({}), HasSubstr("-np"));
  EXPECT_THAT(complaint({"./train"}), HasSubstr("-np"));
  EXPECT_THAT(complaint({"-np", "2"}), HasSubstr("no program"));
  EXPECT_THAT(complaint({"-np", "2", "--frobnicate", "x"}), HasSubstr("'--frobnicate'"));
  EXPECT_THAT(complaint({"-np", "1", "-p", "0", "x"}), HasSubstr("--ssh-port"));
  EXPECT_THAT(complaint({"-np", "1", "-H", "a", "--hostfile", "f", "x"}), HasSubstr("--hostfile"));
  EXPECT_THAT(complaint({"-np"}), HasSubstr("needs a value"));
  EXPECT_THAT(complaint({"-np", "1", "-H", "", "x"}), HasSubstr("needs a value"));
  EXPECT_THAT(complaint({"-np", "1", "--verbose=yes", "x"}), HasSubstr("takes no value"));
  for (const char* number : {"0", "-1", "x", "2.5", "1x", "99999999999999", "65537"}) {
    EXPECT_THAT(complaint({"-np", number, "x"}), HasSubstr("--num-proc")) << number;
  }
  EXPECT_THAT(complaint({"-np", "1", "--grace", "-1", "x"}), HasSubstr("--grace"));
  EXPECT_THAT(complaint({"-np", "1", "--grace", "soon", "x"}), HasSubstr("--grace"));
  EXPECT_THAT(complaint({"-np", "1", "--timeout", "nan", "x"}), HasSubstr("--timeout"));
  EXPECT_THAT(complaint({"-np", "1", "-x", "1A=2", "x"}), HasSubstr("'1A=2'"));
  EXPECT_THAT(complaint({"-np", "1", "-x", "=2", "x"}), HasSubstr("'=2'"));
  for (const char* name : {"HVD_RANK", "HVD_STATUS_FD", "LOCAL_RANK", "WORLD_SIZE"}) {
    EXPECT_THAT(complaint({"-np", "1", "-x", std::string(name) + "=2", "x"}),
                HasSubstr(std::string(name) + ": hvdrun sets this one itself"));
  }
  EXPECT_THAT(complaint({"-np", "1", "--no-prefix", "--prefix-output-with-timestamp", "x"}),
              HasSubstr("--no-prefix"));
}

}  // namespace
}  // namespace hvd::launcher
