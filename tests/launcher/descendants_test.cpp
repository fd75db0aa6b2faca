// Tests how hvdrun ends what a lost agent has left to it.
#include "supervise/descendants.hpp"

#include <array>
#include <chrono>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <hvd/core/internal/fd.hpp>

#include "supervise/start_process.hpp"

namespace hvd::launcher {
namespace {

// More than two would be needed to hold one for each process.
TEST(DescendantsTest, StraysAreKilledWhileTwoDescriptorsAreFree) {
  std::vector<pid_t> strays;
  for (int i = 0; i < 4; ++i) {
    const UniqueFd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
    strays.push_back(start_process({.path = "/bin/sleep",
                                    .arguments = {"sleep", "600"},
                                    .variables = {"HVD_JOB_ID=hvd-1"},
                                    .input = null.get(),
                                    .output = null.get(),
                                    .error = null.get()}));
  }
  rlimit before{};
  ::getrlimit(RLIMIT_NOFILE, &before);
  const rlimit few{.rlim_cur = 100, .rlim_max = before.rlim_max};
  ::setrlimit(RLIMIT_NOFILE, &few);
  std::vector<UniqueFd> held;
  for (int fd = 0; (fd = ::dup(STDERR_FILENO)) >= 0;) held.emplace_back(fd);
  held.resize(held.size() - 2);
  EXPECT_NO_THROW(kill_strays("hvd-1", Clock::now() + std::chrono::seconds{60}));
  held.clear();
  ::setrlimit(RLIMIT_NOFILE, &before);
  for (const pid_t pid : strays) {
    EXPECT_EQ(::waitpid(pid, nullptr, WNOHANG), -1) << "it has not been waited for";
    ::kill(pid, SIGKILL);
  }
}

}  // namespace
}  // namespace hvd::launcher
