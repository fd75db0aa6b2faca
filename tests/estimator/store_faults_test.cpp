// Tests storage that fails: the error names the file, the old file is kept, and no other file is
// left.
#include <gmock/gmock.h>
#include <hvd_test/errors.hpp>

#include <hvd/estimator/parquet_source.hpp>
#include <hvd/estimator/store.hpp>

#include "folder.hpp"
#include "small_disk.hpp"

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

/// Runs in a file system of 64 KiB. The test below runs this one.
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
  run_on_small_disk("StoreFaults.DISABLED_OnASmallDisk");
}

}  // namespace
}  // namespace hvd
