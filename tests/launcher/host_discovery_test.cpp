// Tests how hvdrun runs the script that lists the hosts of an elastic job, with scripts that hang
// or print much.
#include "plan/host_discovery.hpp"

#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hvd_test/process.hpp>
#include <sys/wait.h>

#include "directory.hpp"

namespace hvd::launcher {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;

class HostDiscoveryTest : public testing::Test {
 protected:
  void start(const std::string& script, milliseconds limit = seconds{60}) {
    discovery_ = std::make_unique<HostDiscovery>(
        io_,
        HostDiscovery::Options{.command = script,
                               .variables = {"PATH=/usr/bin:/bin"},
                               .pause = milliseconds{1},
                               .limit = limit},
        HostDiscovery::Handlers{
            .on_hosts = [this](std::vector<HostSpec> listed) { lists_.push_back(listed.size()); },
            .on_failure = [this](const std::string& why) { failures_.push_back(why); }});
  }
  void run_one() {
    if (io_.run_one_for(seconds{60}) == 0) throw std::runtime_error("nothing happened");
  }

  boost::asio::io_context io_;
  std::unique_ptr<HostDiscovery> discovery_;
  std::vector<std::size_t> lists_;  ///< how many hosts each of them had
  std::vector<std::string> failures_;
};

/// A busy hvdrun learns of the output and of the end of the script together.
TEST_F(HostDiscoveryTest, AListIsCompleteThoughTheScriptHasEnded) {
  start("seq -f host-with-a-long-name-%04g 1 1000");
  run_one();  // starts the script
  const Deadline deadline = test::in(seconds{60});
  siginfo_t ended{};
  while (ended.si_pid == 0 && Clock::now() < deadline) {
    ASSERT_EQ(::waitid(P_ALL, 0, &ended, WEXITED | WNOWAIT | WNOHANG), 0);
    std::this_thread::yield();
  }
  while (lists_.empty() && failures_.empty()) run_one();
  EXPECT_THAT(failures_, IsEmpty());
  EXPECT_THAT(lists_, testing::ElementsAre(1000U));
}

TEST_F(HostDiscoveryTest, AScriptThatHangsIsKilledAndStartedAgain) {
  const Directory directory;
  start(fmt::format("mkdir {}/first 2>/dev/null && sleep 600; echo a", directory.path().string()),
        milliseconds{500});
  while (lists_.empty()) run_one();
  EXPECT_FALSE(failures_.empty());
  EXPECT_THAT(failures_, Each(HasSubstr("did not end within 0.5 s")));
  EXPECT_EQ(lists_.front(), 1U);
}

TEST_F(HostDiscoveryTest, AScriptThatPrintsWithoutEndIsKilled) {
  start("yes");
  while (failures_.empty()) run_one();
  EXPECT_EQ(failures_.front(), "--host-discovery-script 'yes' printed more than 1048576 bytes");
}

TEST_F(HostDiscoveryTest, AfterAStopNothingIsCalled) {
  start("sleep 600");
  run_one();
  discovery_->stop();
  EXPECT_NE(io_.run_for(seconds{60}), 0U);  // until nothing is left to wait for
  EXPECT_TRUE(io_.stopped());
  EXPECT_THAT(lists_, IsEmpty());
  EXPECT_THAT(failures_, IsEmpty());
}

}  // namespace
}  // namespace hvd::launcher
