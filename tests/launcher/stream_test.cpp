// Tests how hvdrun passes on the output of ranks.
#include <array>
#include <csignal>
#include <filesystem>
#include <optional>
#include <stdexcept>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "directory.hpp"
#include "hvdrun.hpp"

namespace hvd::launcher {
namespace {

using testing::AllOf;
using testing::HasSubstr;

struct Pipe {
  Pipe() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("pipe2");
    read.reset(ends[0]);
    write.reset(ends[1]);
  }
  UniqueFd read;
  UniqueFd write;
};

TEST(StreamTest, EveryLineHasItsRankOnItsOwnStream) {
  const auto result = run(hvdrun_script(2, "echo to out; echo to err >&2"));
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("[0]<stdout>:to out\n"), HasSubstr("[1]<stdout>:to out\n")));
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("[0]<stderr>:to err\n"), HasSubstr("[1]<stderr>:to err\n")));
}

TEST(StreamTest, ReturnsUtf8AndTheUnfinishedLastLineAreKept) {
  const auto result = run(hvdrun_script(1, R"(printf '10%%\r20%%\r\n\303'; printf '\244 end')"));
  EXPECT_EQ(result.out, "[0]<stdout>:10%\r[0]<stdout>:20%\r\n[0]<stdout>:\xc3\xa4 end\n");
}

TEST(StreamTest, NoPrefixLeavesBytesAlone) {
  const auto result = run(hvdrun_script(1, R"(printf 'a\r\nb')", {"--no-prefix"}));
  EXPECT_EQ(result.out, "a\r\nb");
}

TEST(StreamTest, TimestampsWhereAskedFor) {
  const auto result = run(hvdrun_script(1, "echo x", {"--prefix-output-with-timestamp"}));
  EXPECT_THAT(result.out,
              testing::ContainsRegex("^20..-..-.. ..:..:..\\.... \\[0\\]<stdout>:x\n$"));
}

TEST(StreamTest, FilesHoldTheBytesOfEveryRank) {
  const Directory directory;
  const auto path = directory.path() / "logs" / "today";
  const auto result = run(hvdrun_script(2, R"(printf "o$HVD_RANK\rx"; printf "e$HVD_RANK" >&2)",
                                        {"--output-filename", path.string()}));
  EXPECT_EQ(result.exit_code(), 0) << result.err;
  EXPECT_EQ(directory.read("logs/today/rank.0/stdout"), "o0\rx");
  EXPECT_EQ(directory.read("logs/today/rank.1/stderr"), "e1");
  EXPECT_THAT(result.out, HasSubstr("[1]<stdout>:x\n"));
}

TEST(StreamTest, FilesThatCannotBeWrittenStopTheJobBeforeItStarts) {
  const auto result = run(hvdrun_script(1, "echo started", {"--output-filename", "/dev/null/x"}));
  EXPECT_EQ(result.exit_code(), 71);
  EXPECT_EQ(result.out, "");
}

TEST(StreamTest, AFloodWaitsForItsReaderAndNothingIsLost) {
  constexpr std::size_t kLines = 1'000'000;
  const std::string line(99, 'x');
  Pipe pipe;
  auto options = hvdrun_script(
      1, "yes " + line + " | head -n " + std::to_string(kLines) + "; echo flooded >&2");
  options.output = pipe.write.get();
  test::Process process(std::move(options));
  pipe.write.reset();
  // While the output is not read, the rank cannot write 100 MB, so no process holds that much in
  // memory.
  EXPECT_THROW(process.wait_for_err("flooded", test::in(std::chrono::seconds(1))),
               std::runtime_error);
  const std::string expected = "[0]<stdout>:" + line + "\n";
  const auto deadline = test::in(std::chrono::seconds(90));
  std::size_t lines = 0;
  for (;; ++lines) {
    const std::string got = read_some(pipe.read, expected.size() * 1000, deadline);
    if (got.empty()) break;
    ASSERT_EQ(got.substr(0, expected.size()), expected);
    ASSERT_EQ(got.size(), expected.size() * 1000);
  }
  EXPECT_EQ(lines, kLines / 1000);
  EXPECT_EQ(process.wait(deadline).exit_code(), 0);
}

TEST(StreamTest, AReaderThatDoesNotReadDoesNotHoldAFailedJob) {
  Pipe pipe;
  test::Lifeline lifeline;
  auto options = hvdrun_script(2, "test $HVD_RANK = 0 && exec yes; sleep 0.2; exit 9");
  options.output = pipe.write.get();
  options.inherited = {lifeline.fd()};
  EXPECT_EQ(run(std::move(options)).exit_code(), 9);
  EXPECT_TRUE(lifeline.all_gone(test::in(kPatience)));
}

TEST(StreamTest, SignalsDoNotHoldAJobWhoseReaderDoesNotRead) {
  Pipe pipe;
  auto options = hvdrun_script(1, "yes | head -c 500000; echo ready >&2; exec sleep 600");
  options.output = pipe.write.get();
  test::Process process(std::move(options));
  process.wait_for_err("ready", test::in(kPatience));
  EXPECT_TRUE(
      signal_until_the_end(process, SIGINT, test::in(kPatience), std::chrono::milliseconds(50)));
  EXPECT_EQ(process.wait(test::in(kPatience)).exit_code(), 128 + SIGINT);
}

TEST(StreamTest, AReaderThatGoesAwayEndsTheJob) {
  Pipe pipe;
  test::Lifeline lifeline;
  auto options = hvdrun_script(2, "exec yes");
  options.output = pipe.write.get();
  options.inherited = {lifeline.fd()};
  test::Process process(std::move(options));
  pipe.write.reset();
  EXPECT_THAT(read_some(pipe.read, 100, test::in(kPatience)), HasSubstr("<stdout>:y\n"));
  pipe.read.reset();
  const auto result = process.wait(test::in(kPatience));
  EXPECT_EQ(result.exit_code(), 128 + SIGPIPE);
  EXPECT_THAT(result.err, HasSubstr("stdout was closed by its reader"));
  EXPECT_TRUE(lifeline.all_gone(test::in(kPatience)));
}

/// A job whose ranks have exited with 0, but whose output nobody has read yet.
class LateReader : public testing::Test {
 protected:
  void start(const std::vector<std::string>& more, int output) {
    std::vector<std::string> options{"--status", "--status-interval", "60"};
    options.insert(options.end(), more.begin(), more.end());
    auto process = hvdrun_script(1, "head -c 100000 /dev/zero", options);
    process.output = output;
    job.emplace(std::move(process));
    job->wait_for_err("this is job", test::in(kPatience));
    ASSERT_TRUE(status_ended(*job, test::in(kPatience)));
  }

  Pipe pipe;
  std::optional<test::Process> job;
};

TEST_F(LateReader, WhoGoesAwayFailsTheJob) {
  start({}, pipe.write.get());
  pipe.write.reset();
  pipe.read.reset();
  const auto result = job->wait(test::in(kPatience));
  EXPECT_EQ(result.exit_code(), 128 + SIGPIPE);
  EXPECT_THAT(result.err, HasSubstr("stdout was closed by its reader"));
}

TEST_F(LateReader, OfAFileFailsTheJobToo) {
  const Directory directory;
  std::filesystem::create_directories(directory.path() / "logs" / "rank.0");
  const auto file = directory.path() / "logs" / "rank.0" / "stdout";
  ASSERT_EQ(::mkfifo(file.c_str(), 0600), 0);
  UniqueFd reader(::open(file.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  const UniqueFd null(::open("/dev/null", O_WRONLY | O_CLOEXEC));
  start({"--output-filename", (directory.path() / "logs").string()}, null.get());
  reader.reset();
  const auto result = job->wait(test::in(kPatience));
  EXPECT_EQ(result.exit_code(), 128 + SIGPIPE);
  EXPECT_THAT(result.err, HasSubstr("logs' was closed by its reader"));
}

TEST_F(LateReader, IsNotWaitedForAfterASignal) {
  start({}, pipe.write.get());
  job->signal(SIGINT);
  const auto result = job->wait(test::in(kPatience));
  EXPECT_EQ(result.exit_code(), 128 + SIGINT);
  EXPECT_THAT(result.err, HasSubstr("received signal 2 (SIGINT)"));
}

TEST(StreamTest, AFileIsWrittenLikeAPipe) {
  const Directory directory;
  UniqueFd file(::open((directory.path() / "out").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  auto options = hvdrun_script(2, "echo x");
  options.output = file.get();
  EXPECT_EQ(run(std::move(options)).exit_code(), 0);
  EXPECT_THAT(directory.read("out"),
              AllOf(HasSubstr("[0]<stdout>:x\n"), HasSubstr("[1]<stdout>:x\n")));
}

TEST(StreamTest, AFullDiskEndsTheJob) {
  UniqueFd full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
  if (!full) GTEST_SKIP() << "needs /dev/full";
  auto options = hvdrun_script(1, "echo x; exec sleep 60");
  options.output = full.get();
  const auto result = run(std::move(options));
  EXPECT_EQ(result.exit_code(), 71);
  EXPECT_THAT(result.err, HasSubstr("cannot write to stdout"));
}

}  // namespace
}  // namespace hvd::launcher
