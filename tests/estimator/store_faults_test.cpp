// Storage that refuses: a named error, the old file still there, nothing left beside it.
#include <gmock/gmock.h>
#include <hvd_test/errors.hpp>
#include <hvd_test/process.hpp>

#include <hvd/estimator/parquet_source.hpp>
#include <hvd/estimator/store.hpp>

#include "folder.hpp"

namespace hvd {
namespace {

using namespace test;  // NOLINT: a test
using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(StoreFaults, AFolderThatCannotBeMadeIsNamed) {
  const Folder folder;
  write_content(folder / "file", "x");
  const auto store = EstimatorStore::open(folder / "file");
  const Error error = error_of([&] { store.write("runs/a/model.hvd", "x"); });
  EXPECT_EQ(error.code(), Errc::resource);
  EXPECT_THAT(error.what(), HasSubstr(folder / "file"));
  EXPECT_EQ(content_of(folder / "file"), "x");
}

/// In a file system of 64 KiB, the only thing mounted there: run by the test below.
TEST(StoreFaults, DISABLED_OnASmallDisk) {
  const auto store = EstimatorStore::open("/mnt/store");
  store.write("runs/a/model.hvd", "the old one");
  const Error error = error_of([&] { store.write("runs/a/model.hvd", std::string(100000, 'x')); });
  EXPECT_EQ(error.code(), Errc::resource);
  EXPECT_THAT(error.what(), HasSubstr("/mnt/store/runs/a/model.hvd"));
  EXPECT_THAT(error.what(), HasSubstr("No space left on device"));
  EXPECT_THAT(store.list("runs/a"), ElementsAre("model.hvd"));
  EXPECT_EQ(content_of("/mnt/store/runs/a/model.hvd"), "the old one");

  const Error parquet =
      error_of([&] { write_parquet("/mnt/store/t.parquet", {"x"}, {torch::rand({30000})}); });
  EXPECT_EQ(parquet.code(), Errc::resource);
  EXPECT_THAT(parquet.what(), HasSubstr("No space left on device"));
  store.write("runs/a/model.hvd", "a new one");
  EXPECT_EQ(content_of("/mnt/store/runs/a/model.hvd"), "a new one");
}

TEST(StoreFaults, AFullDiskIsANamedErrorAndLosesNothing) {
  ProcessOptions probe;
  probe.arguments = {"unshare", "--mount", "mount", "-t", "tmpfs", "none", "/mnt"};
  if (run_process(probe, in(10s)).exit_code() != 0) GTEST_SKIP() << "needs private mounts";
  ProcessOptions options;
  options.arguments = {"unshare",
                       "--mount",
                       "sh",
                       "-c",
                       "mount -t tmpfs -o size=64k none /mnt || exit 9; exec \"$0\" \"$@\"",
                       "/proc/self/exe"};
  options.arguments.back() = std::filesystem::read_symlink("/proc/self/exe").string();
  options.arguments.insert(
      options.arguments.end(),
      {"--gtest_also_run_disabled_tests", "--gtest_filter=StoreFaults.DISABLED_OnASmallDisk"});
  options.environment["GTEST_OUTPUT"] = std::nullopt;
  const ProcessResult result = run_process(options, in(60s));
  EXPECT_EQ(result.exit_code(), 0) << result.out << result.err;
  EXPECT_THAT(result.out, HasSubstr("[  PASSED  ] 1 test"));
}

}  // namespace
}  // namespace hvd
