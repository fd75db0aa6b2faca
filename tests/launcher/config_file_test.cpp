#include "cli/config_file.hpp"

#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/exit_codes.hpp"
#include "cli/options.hpp"
#include "directory.hpp"

namespace hvd::launcher {
namespace {

using std::chrono::milliseconds;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class ConfigFileTest : public testing::Test {
 protected:
  [[nodiscard]] std::string file(const std::string& text) const {
    const auto path = directory_.path() / "job.yaml";
    std::ofstream(path) << text;
    return path.string();
  }

  /// Returns the options of "hvdrun --config-file F words... ./train".
  [[nodiscard]] Options parse(const std::string& text, std::vector<std::string> words = {}) const {
    words.insert(words.begin(), {"--config-file", file(text)});
    words.emplace_back("./train");
    return parse_options(words);
  }

  [[nodiscard]] std::string complaint(const std::string& text,
                                      const std::vector<std::string>& words = {}) const {
    try {
      (void)parse(text, words);
    } catch (const LaunchError& error) {
      EXPECT_EQ(error.code(), kExitUsage);
      EXPECT_THAT(error.what(), testing::Not(HasSubstr("\n")));
      return error.what();
    }
    ADD_FAILURE() << "accepted:\n" << text;
    return "";
  }

  Directory directory_;
};

std::string tuning_of(const Options& options) {
  std::string all;
  for (const ExportSpec& spec : options.tuning) all += spec.name + "=" + *spec.value + "\n";
  return all;
}

TEST_F(ConfigFileTest, FlatKeysAreTheLongOptions) {
  const Options options = parse(
      "# a job\n"
      "num-proc: 4\n"
      "hosts: [a:2, 'b:2']\n"
      "launcher: ssh\n"
      "ssh_port: 2222\n"
      "grace: 0.5\n"
      "verbose: true\n"
      "no-prefix: no\n"
      "timeline-filename: t.json\n"
      "start_timeout: 7\n");
  EXPECT_EQ(options.num_proc, 4);
  EXPECT_EQ(options.hosts, "a:2,b:2");
  EXPECT_EQ(options.launcher, Launcher::ssh);
  EXPECT_EQ(options.ssh_port, 2222);
  EXPECT_EQ(options.grace, milliseconds{500});
  EXPECT_EQ(options.start_timeout, milliseconds{7000});
  EXPECT_TRUE(options.verbose);
  EXPECT_TRUE(options.prefix);
  EXPECT_EQ(tuning_of(options), "HVD_TIMELINE=t.json\n");
  EXPECT_THAT(options.program, ElementsAre("./train"));
}

TEST_F(ConfigFileTest, TheNestedFormOfHorovod) {
  const Options options = parse(
      "np: 2\n"
      "params:\n"
      "  fusion_threshold_mb: 32\n"
      "autotune:\n"
      "  enabled: true\n"
      "  log_file: 'log.txt'\n"
      "timeline:\n"
      "  filename: timeline.json\n"
      "stall_check:\n"
      "  enabled: true\n"
      "  warning_time_seconds: 120\n"
      "  shutdown_time_seconds: 240\n"
      "logging: {level: debug}\n");
  for (const char* one : {"HVD_FUSION_THRESHOLD=32M\n", "HVD_AUTOTUNE=1\n",
                          "HVD_AUTOTUNE_LOG=log.txt\n", "HVD_TIMELINE=timeline.json\n",
                          "HVD_STALL_WARN_S=120\n", "HVD_STALL_ABORT_S=240\n", "HVD_LOG=debug\n"}) {
    EXPECT_THAT(tuning_of(options), HasSubstr(one));
  }
  EXPECT_EQ(options.tuning.size(), 7U);
  EXPECT_THAT(tuning_of(parse("np: 2\nstall_check: {enabled: false}\n")),
              HasSubstr("HVD_STALL_WARN_S=0"));
  EXPECT_EQ(tuning_of(parse("np: 2\nautotune: {enabled: false}\n")), "");
}

TEST_F(ConfigFileTest, TheCommandLineWins) {
  const std::string text = "num-proc: 4\nhostfile: hosts\ngrace: 1\ntimeline: {filename: a}\n";
  const Options options =
      parse(text, {"-np", "2", "-H", "localhost:2", "--timeline-filename", "b"});
  EXPECT_EQ(options.num_proc, 2);
  EXPECT_EQ(options.hosts, "localhost:2");
  EXPECT_EQ(options.hostfile, "");
  EXPECT_EQ(options.grace, milliseconds{1000});
  EXPECT_EQ(tuning_of(options), "HVD_TIMELINE=b\n");
  EXPECT_FALSE(parse("np: 1\nprefix-output-with-timestamp: true\n", {"--no-prefix"}).timestamps);
}

TEST_F(ConfigFileTest, VariablesAddUpAndTheCommandLinesComeLast) {
  const Options options = parse("np: 1\nx:\n  A: 1\n  B: ' two words'\n", {"-x", "A=2", "-x", "C"});
  ASSERT_EQ(options.exports.size(), 4U);
  EXPECT_EQ(options.exports[1].value, " two words");
  EXPECT_EQ(options.exports[2].name, "A");
  EXPECT_EQ(options.exports[2].value, "2");
  EXPECT_EQ(options.exports[3].value, std::nullopt);
  const Options texts = parse("np: 1\nx: [A=1, B]\nmpi-launch-flag: env D=4\n");
  ASSERT_EQ(texts.exports.size(), 3U);
  EXPECT_EQ(texts.exports[1].name, "B");
  EXPECT_EQ(texts.exports[2].value, "4");
}

TEST_F(ConfigFileTest, UnknownKeysAreNamedWithTheirLines) {
  EXPECT_THAT(
      complaint("num-proc: 2\nfrobnicate: 1\nparams:\n  cycle_time_ms: 10\n  cache_capacity: 1\n"),
      AllOf(HasSubstr("job.yaml"), HasSubstr("'frobnicate' (line 2)"),
            HasSubstr("'cycle_time_ms' (line 4)"), HasSubstr("'cache_capacity' (line 5)")));
  EXPECT_THAT(complaint("np: 1\ncontroller: gloo\n"), HasSubstr("'controller' (line 2)"));
  EXPECT_THAT(complaint("np: 1\nverbose: {level: 1}\n"), HasSubstr("'level' (line 2)"));
}

TEST_F(ConfigFileTest, MistakesAreNamedWithTheirLine) {
  EXPECT_THAT(complaint("np: 1\nnum_proc: 2\nnum-proc: 3\n"), HasSubstr("line 3: 'num-proc'"));
  EXPECT_THAT(complaint("\nnum-proc: many\n"), AllOf(HasSubstr("--num-proc"), HasSubstr("line 2")));
  EXPECT_THAT(complaint("np: 1\nverbose: perhaps\n"), HasSubstr("line 2: expected true or false"));
  EXPECT_THAT(complaint("np: 1\ngrace: {a: 1}\n"), HasSubstr("line 2"));
  EXPECT_THAT(complaint("np: 1\nhosts: ''\n"), HasSubstr("--hosts needs a value"));
  EXPECT_THAT(complaint("np: 1\nx: [[A]]\n"), HasSubstr("line 2"));
  EXPECT_THAT(complaint("- np\n"), HasSubstr("line 1: expected options"));
  EXPECT_THAT(complaint("np: 1\n  bad: [\n"), HasSubstr("line"));
  EXPECT_THAT(complaint("np: 1\nhelp: true\n"), HasSubstr("--help belongs on the command line"));
  EXPECT_THAT(complaint("np: 1\nconfig-file: x\n"), HasSubstr("line 2"));
  EXPECT_THAT(complaint("[a, b]: 1\n"), HasSubstr("a key is no name"));
  EXPECT_THAT(complaint("np: 1\nx: {HVD_RANK: 3}\n"), HasSubstr("HVD_RANK"));
}

TEST_F(ConfigFileTest, AMistakeIsNotThatOfAnOptionWithTheBeginningOfTheName) {
  const std::string text = "np: 1\nstatus: true\n";
  EXPECT_THAT(complaint(text, {"--status-interval", "abc"}),
              AllOf(HasSubstr("--status-interval"), testing::Not(HasSubstr("line 2"))));
  EXPECT_THAT(complaint(text + "status-interval: abc\n"), HasSubstr("line 3"));
}

TEST_F(ConfigFileTest, FilesThatCannotBeRead) {
  const auto of = [](const std::string& path) {
    try {
      (void)parse_options({"--config-file", path, "-np", "1", "x"});
    } catch (const LaunchError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(of("/no/such/file"), HasSubstr("cannot be read"));
  EXPECT_THAT(of("/"), HasSubstr("cannot be read"));
  EXPECT_THAT(of(file(std::string((1 << 20) + 1, '#'))), HasSubstr("more than 1 MiB"));
  EXPECT_EQ(of(file("")), "");
}

TEST_F(ConfigFileTest, DeepAndCyclicFilesAreErrors) {
  EXPECT_NE(complaint(std::string(10'000, '[')), "");
  EXPECT_NE(complaint("np: 1\nx: &a {b: *a}\n"), "");
  EXPECT_NE(complaint("&a {params: *a}\n"), "");
  EXPECT_NE(complaint("np: *nowhere\n"), "");
}

}  // namespace
}  // namespace hvd::launcher
