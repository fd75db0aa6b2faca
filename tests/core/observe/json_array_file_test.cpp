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

TEST(JsonArrayFile, IsValidFromTheBeginning) {
  const Scratch scratch;
  JsonArrayFile file(scratch.file("a"), "{\"n\":0}", kNoLimit);
  EXPECT_EQ(read_json(scratch.file("a")).size(), 1U);
  ASSERT_TRUE(file.append("{\"n\":1}"));
  EXPECT_EQ(read_json(scratch.file("a")).size(), 1U);  // not flushed
  file.flush();
  EXPECT_EQ(read_json(scratch.file("a")).size(), 2U);
  file.close();
  EXPECT_EQ(read_file(scratch.file("a")), "[\n{\"n\":0},\n{\"n\":1}\n]\n");
}

TEST(JsonArrayFile, GrowsAndKeepsEveryElement) {
  const Scratch scratch;
  JsonArrayFile file(scratch.file("a"), "{\"n\":0}", kNoLimit);
  std::mt19937 random(3);
  std::size_t count = 1;
  for (; count < 5000; ++count) {
    const std::size_t size = 20 + random() % (JsonArrayFile::kMaxElement - 19);
    ASSERT_TRUE(file.append(element(count, size)));
    if (random() % 100 == 0) file.flush();
  }
  file.close();
  const auto all = read_json(scratch.file("a"));
  ASSERT_EQ(all.size(), count);
  for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(all[i]["n"], i);
  EXPECT_FALSE(std::filesystem::exists(scratch.file("a.part")));
}

// A killed write ends at a page: what a reader sees then is the new file up to some page and the
// old one from there on.
TEST(JsonArrayFile, IsValidWhereverAWriteIsCutAtAPage) {
  const Scratch scratch;
  const std::string path = scratch.file("a");
  JsonArrayFile file(path, "{\"n\":0}", kNoLimit);
  std::mt19937 random(5);
  std::string before = read_file(path);
  int cuts_within = 0;
  for (std::size_t count = 1; count < 1000; ++count) {
    ASSERT_TRUE(file.append(element(count, 20 + random() % 900)));
    if (random() % 20 != 0) continue;
    file.flush();
    const std::string after = read_file(path);
    if (after.size() == before.size()) {  // written in place
      for (std::size_t cut = 0; cut <= after.size(); cut += JsonArrayFile::kPage) {
        const std::string torn = after.substr(0, cut) + before.substr(cut);
        if (torn == before || torn == after) continue;
        ASSERT_TRUE(nlohmann::json::accept(torn)) << "cut at " << cut << " of " << after.size();
        ++cuts_within;
      }
    }
    before = after;
  }
  EXPECT_GT(cuts_within, 10);
}

TEST(JsonArrayFile, SaysWhenItIsFullAndStillTakesANote) {
  const Scratch scratch;
  JsonArrayFile file(scratch.file("a"), "{\"n\":0}", JsonArrayFile::kFirstBytes);
  std::size_t count = 1;
  while (file.append(element(count, 1000))) ++count;
  EXPECT_GT(count, 50U);
  EXPECT_LT(count, 70U);
  for (int i = 0; i < 10; ++i) file.append_to_full(element(count++, 1000));
  file.flush();
  EXPECT_EQ(read_json(scratch.file("a")).size(), count);
  file.close();
  EXPECT_EQ(read_json(scratch.file("a")).size(), count);
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
