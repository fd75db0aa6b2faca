#include "observe/json_array_file.hpp"

#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <hvd/core/error.hpp>

#include "scratch.hpp"

namespace hvd::observe {
namespace {

using test::read_file;
using test::read_json;
using test::Scratch;

constexpr std::size_t kNoLimit = std::size_t{1} << 30;

std::string element(std::size_t number, std::size_t size) {
  std::string text = "{\"n\":" + std::to_string(number) + ",\"pad\":\"";
  text.resize(std::max(text.size(), size - 2), 'x');
  return text + "\"}";
}

TEST(JsonArrayFile, IsValidAfterEveryFlush) {
  const Scratch scratch;
  JsonArrayFile file(scratch.file("a"), "{\"n\":0}", kNoLimit);
  EXPECT_EQ(read_json(scratch.file("a")).size(), 1U);
  ASSERT_TRUE(file.append("{\"n\":1}"));
  EXPECT_EQ(read_json(scratch.file("a")).size(), 1U);  // not flushed
  file.flush();
  EXPECT_EQ(read_file(scratch.file("a")), "[\n{\"n\":0},\n{\"n\":1}\n]\n");
}

TEST(JsonArrayFile, GrowsAndKeepsEveryElement) {
  const Scratch scratch;
  JsonArrayFile file(scratch.file("a"), "{\"n\":0}", kNoLimit);
  std::mt19937 random(3);
  std::size_t count = 1;
  for (; count < 5000; ++count) {
    ASSERT_TRUE(file.append(element(count, 20 + random() % 4000)));
    if (random() % 100 == 0) file.flush();
  }
  file.flush();
  const auto all = read_json(scratch.file("a"));
  ASSERT_EQ(all.size(), count);
  for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(all[i]["n"], i);
}

TEST(JsonArrayFile, SaysWhenItIsFullAndStillTakesANote) {
  const Scratch scratch;
  JsonArrayFile file(scratch.file("a"), "{\"n\":0}", 64 << 10);
  std::size_t count = 1;
  while (file.append(element(count, 1000))) ++count;
  EXPECT_GT(count, 60U);
  EXPECT_LT(count, 70U);
  for (int i = 0; i < 10; ++i) file.append_to_full(element(count++, 1000));
  file.flush();
  EXPECT_EQ(read_json(scratch.file("a")).size(), count);
}

TEST(JsonArrayFile, LeavesTheFileThatItReplacesToItsReaders) {
  const Scratch scratch;
  std::ofstream(scratch.file("a")) << "old";
  std::ifstream reader(scratch.file("a"));
  const JsonArrayFile file(scratch.file("a"), "{}", kNoLimit);
  std::string text;
  reader >> text;
  EXPECT_EQ(text, "old");
}

TEST(JsonArrayFile, NamesAPathThatItCannotWrite) {
  const Scratch scratch;
  const auto error_at = [](const std::string& path) -> std::string {
    try {
      JsonArrayFile file(path, "{}", kNoLimit);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::resource);
      return error.what();
    }
    return "no error";
  };
  const std::string missing = scratch.file("missing/a");
  EXPECT_NE(error_at(missing).find(missing), std::string::npos) << error_at(missing);
  const std::string directory = std::filesystem::path(missing).parent_path().parent_path().string();
  EXPECT_NE(error_at(directory).find("not a file"), std::string::npos);
  const std::string fifo = scratch.file("fifo");
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_NE(error_at(fifo).find("not a file"), std::string::npos);
}

}  // namespace
}  // namespace hvd::observe
