// Runs a test of this program with a file system of 64 KiB at /mnt.
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hvd_test/process.hpp>

namespace hvd::test {

/// `name` is a disabled test, which is of no use elsewhere. Skips when a process may not have
/// mounts of its own.
inline void run_on_small_disk(const std::string& name) {
  using namespace std::chrono_literals;
  ProcessOptions probe;
  probe.arguments = {"unshare", "--mount", "mount", "-t", "tmpfs", "none", "/mnt"};
  if (run_process(probe, in(10s)).exit_code() != 0) GTEST_SKIP() << "needs private mounts";
  ProcessOptions options;
  options.arguments = {"unshare",
                       "--mount",
                       "sh",
                       "-c",
                       "mount -t tmpfs -o size=64k none /mnt || exit 9; exec \"$0\" \"$@\"",
                       std::filesystem::read_symlink("/proc/self/exe").string(),
                       "--gtest_also_run_disabled_tests",
                       "--gtest_filter=" + name};
  options.environment["GTEST_OUTPUT"] = std::nullopt;
  const ProcessResult result = run_process(options, in(60s));
  EXPECT_EQ(result.exit_code(), 0) << result.out << result.err;
  EXPECT_THAT(result.out, testing::HasSubstr("[  PASSED  ] 1 test"));
}

}  // namespace hvd::test
