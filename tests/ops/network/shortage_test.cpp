// Tests jobs on a machine that lacks /dev/shm or descriptors.
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hvd_test/process.hpp>
#include <unistd.h>

namespace hvd::test {
namespace {

using std::chrono::seconds;
using testing::AnyOf;
using testing::HasSubstr;

/// Two ranks of one host that sum `count` floats, each after a `preparation` in a shell.
class Pair {
 public:
  Pair(const std::string& name, const std::vector<std::string>& preparations, int count) {
    const std::string store = fmt::format("unix:@hvd-test-short-{}-{}", ::getpid(), name);
    for (int rank = 0; rank < 2; ++rank) {
      ProcessOptions options;
      options.arguments = {"sh", "-c",
                           preparations[static_cast<std::size_t>(rank)] + " exec \"$0\" \"$@\"",
                           HVD_TEST_NETWORK_RANK};
      if (rank == 0) options.arguments.insert(options.arguments.end(), {"--serve", store});
      options.arguments.insert(options.arguments.end(), {std::to_string(count), "3"});
      options.environment = {{"HVD_RANK", std::to_string(rank)},
                             {"HVD_SIZE", "2"},
                             {"HVD_STORE", store},
                             {"HVD_JOB_ID", "short"},
                             {"HVD_START_TIMEOUT", "3"},
                             {"HVD_COLLECTIVE_TIMEOUT_S", "20"}};
      ranks_.push_back(std::make_unique<Process>(std::move(options)));
    }
  }

  /// Returns the output of each rank. Each must end by itself, not by a signal or an exception.
  std::vector<std::string> finish() {
    std::vector<std::string> said;
    for (const auto& rank : ranks_) {
      const ProcessResult result = rank->wait(in(seconds(40)));
      EXPECT_EQ(result.exit_code(), 0) << result.out << result.err;
      said.push_back(result.out);
    }
    return said;
  }

 private:
  std::vector<std::unique_ptr<Process>> ranks_;
};

bool may_mount() {
  ProcessOptions options;
  options.arguments = {"unshare", "--mount", "mount", "-t", "tmpfs", "none", "/mnt"};
  return ::geteuid() == 0 && run_process(std::move(options), in(seconds(20))).exit_code() == 0;
}

/// Returns a preparation that runs a rank in a mount namespace of its own, after `mounts`.
std::string apart(const std::string& mounts) {
  return fmt::format("exec unshare --mount sh -c '{} || exit 9; exec \"$0\" \"$@\"' \"$0\" \"$@\";",
                     mounts);
}

TEST(Shortage, AFullDevShmIsNotMissed) {
  if (!may_mount()) GTEST_SKIP() << "needs mount namespaces";
  const std::string full = apart(
      "mount -t tmpfs -o size=4k none /dev/shm && ! cat /dev/zero 2>/dev/null >/dev/shm/full");
  for (const std::string& said : Pair("full", {full, full}, 1'000'000).finish()) {
    EXPECT_THAT(said, HasSubstr("\nok "));
  }
}

TEST(Shortage, NorIsAnAbsentOne) {
  if (!may_mount()) GTEST_SKIP() << "needs mount namespaces";
  const std::string absent = apart(
      "mount -t tmpfs none /mnt && touch /mnt/null && mount --bind /dev/null /mnt/null && "
      "mount --rbind /mnt /dev && [ ! -e /dev/shm ]");
  for (const std::string& said : Pair("absent", {absent, absent}, 1'000'000).finish()) {
    EXPECT_THAT(said, HasSubstr("\nok "));
  }
}

TEST(Shortage, OfDescriptorsIsATypedErrorOnBothRanks) {
  // UBSan inspects objects through pipes, and without a free descriptor reports every object as
  // broken.
  if (std::string_view(HVD_TEST_SANITIZE).find("undefined") != std::string_view::npos) {
    GTEST_SKIP() << "needs a build without UBSan, which opens pipes of its own";
  }
  std::vector<std::pair<int, Pair>> jobs;
  for (int limit = 5; limit <= 32; limit += 3) {
    const std::string limited = fmt::format("ulimit -n {};", limit);
    jobs.emplace_back(limit, Pair(fmt::format("{}-and-none", limit), {limited, ""}, 100'000));
    jobs.emplace_back(limit, Pair(fmt::format("none-and-{}", limit), {"", limited}, 100'000));
  }
  int short_of_resources = 0;
  for (auto& [limit, job] : jobs) {
    const std::vector<std::string> said = job.finish();
    for (const std::string& one : said) {
      // The rank itself lacks the resource, or has lost or waited for the other one.
      EXPECT_THAT(one, AnyOf(HasSubstr("ok "), HasSubstr("error resource"),
                             HasSubstr("error peer lost"), HasSubstr("error timeout")))
          << "with " << limit << " descriptors";
    }
    for (const std::string& one : said) {
      short_of_resources += one.find("error resource") != std::string::npos;
    }
  }
  EXPECT_GT(short_of_resources, 0) << "the limits were not low enough to matter";
}

}  // namespace
}  // namespace hvd::test
