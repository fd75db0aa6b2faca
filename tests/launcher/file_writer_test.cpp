// Tests files that a separate thread writes.
#include "job/file_writer.hpp"

#include <chrono>
#include <string>
#include <system_error>
#include <thread>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <hvd_test/process.hpp>

#include "base/descriptors.hpp"
#include "directory.hpp"

namespace hvd::launcher {
namespace {

void ignore(std::error_code) {}

UniqueFd open_new(const Directory& directory, const char* name) {
  return UniqueFd(
      ::open((directory.path() / name).c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
}

class FileWriterTest : public testing::Test {
 protected:
  /// Runs the loop until everything is written or dropped.
  void finish(FileWriter& writer) {
    const auto work = boost::asio::make_work_guard(io);
    const auto deadline = test::in(std::chrono::seconds(30));
    while (!writer.idle() && Clock::now() < deadline) io.run_one_until(deadline);
    EXPECT_TRUE(writer.idle());
    EXPECT_EQ(writer.queued(), 0U);
  }

  boost::asio::io_context io{1};
  const Directory directory;
};

TEST_F(FileWriterTest, TwoDescriptorsOfOneFileKeepTheOrder) {
  FileWriter writer(io);
  const std::size_t out = writer.add(open_new(directory, "both"), ignore);
  const std::size_t err = writer.add(open_new(directory, "both"), ignore);
  std::string expected;
  for (int i = 0; i < 1000; ++i) {
    const std::string line = std::to_string(i) + "\n";
    writer.write(i % 3 == 0 ? err : out, line);
    expected += line;
  }
  finish(writer);
  EXPECT_EQ(directory.read("both"), expected);
}

TEST_F(FileWriterTest, AnErrorIsToldOnceAndOtherFilesAreStillWritten) {
  FileWriter writer(io);
  int errors = 0;
  UniqueFd full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
  if (!full) GTEST_SKIP() << "needs /dev/full";
  const std::size_t broken = writer.add(std::move(full), [&](std::error_code error) {
    EXPECT_EQ(error, std::errc::no_space_on_device);
    ++errors;
  });
  const std::size_t whole = writer.add(open_new(directory, "whole"), ignore);
  for (int i = 0; i < 3; ++i) {
    writer.write(broken, "x");
    writer.write(whole, "y");
  }
  finish(writer);
  EXPECT_EQ(errors, 1);
  EXPECT_EQ(directory.read("whole"), "yyy");
}

TEST_F(FileWriterTest, AWriteThatHangsDoesNotHoldUpTheEnd) {
  Pipe pipe = make_pipe();  // nobody reads
  {
    FileWriter writer(io);
    const std::size_t file = writer.add(std::move(pipe.write), ignore);
    writer.write(file, std::string(1'000'000, 'x'));
    EXPECT_GT(writer.queued(), 0U);
  }
  pipe.read.reset();  // ends the write
}

TEST_F(FileWriterTest, AnErrorOfClosingIsReported) {
  FileWriter writer(io);
  int errors = 0;
  UniqueFd file = open_new(directory, "file");
  const int descriptor = file.get();
  const std::size_t number = writer.add(std::move(file), [&](std::error_code error) {
    EXPECT_EQ(error, std::errc::bad_file_descriptor);
    ++errors;
  });
  ::close(descriptor);  // as an NFS server that has no space left, closing fails
  writer.close(number);
  finish(writer);
  EXPECT_EQ(errors, 1);
}

TEST_F(FileWriterTest, FilesAreOpenedByTheThreadThatWrites) {
  FileWriter writer(io);
  int errors = 0;
  std::thread::id opened_by;
  const std::size_t file = writer.add(
      [&] {
        opened_by = std::this_thread::get_id();
        return open_new(directory, "file");
      },
      ignore);
  const auto empty = writer.add([&] { return open_new(directory, "empty"); }, ignore);
  writer.close(empty);
  const auto open_broken = [&] { return open_new(directory, "no/such/folder"); };
  const auto on_error = [&](std::error_code error) {
    EXPECT_EQ(error, std::errc::no_such_file_or_directory);
    ++errors;
  };
  (void)writer.add(open_broken, on_error);
  const std::size_t broken = writer.add(open_broken, on_error);
  for (int i = 0; i < 2; ++i) {
    writer.write(broken, "x");
    writer.write(file, "y");
  }
  finish(writer);
  EXPECT_EQ(errors, 2);
  EXPECT_EQ(directory.read("file"), "yy");
  EXPECT_EQ(directory.read("empty"), "");
  EXPECT_NE(opened_by, std::this_thread::get_id());
}

}  // namespace
}  // namespace hvd::launcher
