// Tests the end of a process that still has the default context.
#include <cstdlib>

#include <gtest/gtest.h>
#include <hvd_test/ranks.hpp>
#include <sys/wait.h>
#include <unistd.h>

#include <hvd/hvd.hpp>

#include "context/make_context.hpp"

namespace hvd {
namespace {

using namespace detail;  // NOLINT: a test

constexpr int kTooLate = 3;

/// Registers an exit handler as a library does that a context loads: CUDA's driver is unusable
/// after its handler has run.
std::unique_ptr<Context> make_with_a_library(const Config& config) {
  std::unique_ptr<Context> context = make_context(config, make_hash_store());
  std::atexit([] {
    if (is_initialized()) ::_exit(kTooLate);
  });
  return context;
}

class Exit : public testing::Test {
 protected:
  Exit() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(Exit, TheContextGoesBeforeWhatItHasBroughtUp) {
  EXPECT_EXIT(
      {
        init_default_context(test::thread_config(0, 1), make_with_a_library);
        std::exit(EXIT_SUCCESS);
      },
      testing::ExitedWithCode(EXIT_SUCCESS), "");
}

TEST_F(Exit, ALaterContextToo) {
  EXPECT_EXIT(
      {
        init(test::thread_config(0, 1));
        shutdown();
        init_default_context(test::thread_config(0, 1), make_with_a_library);
        std::exit(EXIT_SUCCESS);
      },
      testing::ExitedWithCode(EXIT_SUCCESS), "");
}

TEST_F(Exit, AForkedChildLeavesTheContextAlone) {
  // A sanitizer's allocator does not take its locks for a fork: the child inherits those that the
  // other threads hold, and waits for them when it ends.
  if (test::kSanitized) GTEST_SKIP() << "needs a process without a sanitizer";
  EXPECT_EXIT(
      {
        init(test::thread_config(0, 1));
        const pid_t child = ::fork();
        if (child == 0) {
          ::alarm(60);  // ends the child if it hangs
          std::exit(EXIT_SUCCESS);
        }
        int status = -1;
        ::waitpid(child, &status, 0);
        std::exit(status);
      },
      testing::ExitedWithCode(EXIT_SUCCESS), "");
}

TEST_F(Exit, AfterAShutdownThereIsNothingToDo) {
  EXPECT_EXIT(
      {
        init_default_context(test::thread_config(0, 1), make_with_a_library);
        shutdown();
        std::exit(EXIT_SUCCESS);
      },
      testing::ExitedWithCode(EXIT_SUCCESS), "");
}

}  // namespace
}  // namespace hvd
