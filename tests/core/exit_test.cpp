// The end of a process that has the default context still.
#include <cstdlib>

#include <gtest/gtest.h>
#include <hvd_test/ranks.hpp>
#include <unistd.h>

#include <hvd/hvd.hpp>

#include "default_context.hpp"

namespace hvd {
namespace {

constexpr int kTooLate = 3;

/// As libraries do that a context brings up: CUDA's driver is gone when its handler has run.
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
