#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "supervise/rank_output.hpp"

namespace hvd::launcher {
namespace {

const LineMux::WallClock::time_point kNow{};

class LineMuxTest : public testing::Test {
 protected:
  std::string feed(int rank, std::string_view bytes) { return mux.feed(rank, bytes, kNow); }
  LineMux mux{Stream::out, 3, {}};
};

TEST_F(LineMuxTest, LinesGetTheirRank) {
  EXPECT_EQ(feed(1, "a\nb\n"), "[1]<stdout>:a\n[1]<stdout>:b\n");
  EXPECT_EQ(feed(2, "\n"), "[2]<stdout>:\n");
  EXPECT_EQ(LineMux(Stream::err, 1, {}).feed(0, "x\n", kNow), "[0]<stderr>:x\n");
}

TEST_F(LineMuxTest, PiecesOfALineWaitForItsEnd) {
  EXPECT_EQ(feed(0, "he"), "");
  EXPECT_EQ(feed(1, "other\n"), "[1]<stdout>:other\n");
  EXPECT_EQ(feed(0, "llo\nnext"), "[0]<stdout>:hello\n");
  EXPECT_EQ(mux.finish(kNow), "[0]<stdout>:next\n");
}

TEST_F(LineMuxTest, TheLastLineOfARankThatHasEndedWaitsForNothing) {
  EXPECT_EQ(feed(0, "unfin"), "");
  EXPECT_EQ(mux.flush(0, kNow), "[0]<stdout>:unfin");
  EXPECT_EQ(mux.flush(0, kNow), "");
  EXPECT_EQ(mux.flush(7, kNow), "");
  EXPECT_EQ(feed(0, "ished"), "");
  EXPECT_EQ(mux.flush(0, kNow), "ished");
  EXPECT_EQ(feed(1, "other\n"), "\n[1]<stdout>:other\n");
}

TEST_F(LineMuxTest, ReturnsAreKeptAndEndALine) {
  EXPECT_EQ(feed(0, "10%\r20%\r"), "[0]<stdout>:10%\r[0]<stdout>:20%\r");
  EXPECT_EQ(feed(0, "done\r\n"), "[0]<stdout>:done\r\n");
}

TEST_F(LineMuxTest, AReturnAndANewlineInTwoPiecesAreOneEnd) {
  EXPECT_EQ(feed(0, "a\r"), "[0]<stdout>:a\r");
  EXPECT_EQ(feed(0, "\nb\n"), "\n[0]<stdout>:b\n");
}

TEST_F(LineMuxTest, Utf8InTwoPiecesStaysWhole) {
  const std::string text = "\xf0\x9f\x8c\x8d";  // one character of four bytes
  std::string out;
  for (const char byte : text + "\n") out += feed(0, std::string(1, byte));
  EXPECT_EQ(out, "[0]<stdout>:" + text + "\n");
}

TEST_F(LineMuxTest, ALongLineGoesOutInPiecesWithOnePrefix) {
  const std::string big(3 * LineMux::kMaxHeld, 'x');
  std::string out;
  for (std::size_t at = 0; at < big.size(); at += 1000) out += feed(0, big.substr(at, 1000));
  EXPECT_GT(out.size(), 2 * LineMux::kMaxHeld);
  out += feed(0, "\n");
  EXPECT_EQ(out, "[0]<stdout>:" + big + "\n");
}

TEST_F(LineMuxTest, ALongLineIsNeverCutInsideACharacter) {
  const std::string euro = "\xe2\x82\xac";
  std::string big;
  while (big.size() <= LineMux::kMaxHeld + 1) big += euro;
  const std::string out = feed(0, big.substr(0, LineMux::kMaxHeld + 2));
  const std::string prefix = "[0]<stdout>:";
  ASSERT_GT(out.size(), prefix.size());
  EXPECT_EQ((out.size() - prefix.size()) % euro.size(), 0U);
}

TEST_F(LineMuxTest, AnotherRankBreaksALongLineVisibly) {
  const std::string big(LineMux::kMaxHeld + 1, 'x');
  EXPECT_EQ(feed(0, big), "[0]<stdout>:" + big);
  EXPECT_EQ(feed(1, "y\n"), "\n[1]<stdout>:y\n");
  EXPECT_EQ(feed(0, "z\n"), "[0]<stdout>:z\n");
}

TEST_F(LineMuxTest, BytesThatAreNoTextPassUnchanged) {
  const std::string bytes("\0\xff\xfe\x80\n", 5);
  EXPECT_EQ(feed(0, bytes), "[0]<stdout>:" + bytes);
}

TEST(LineMuxOptionsTest, WithoutPrefixBytesAreUntouched) {
  LineMux mux(Stream::out, 2, {.prefix = false});
  EXPECT_EQ(mux.feed(0, "a\r\nb", kNow), "a\r\n");
  EXPECT_EQ(mux.feed(1, "c\n", kNow), "c\n");
  EXPECT_EQ(mux.finish(kNow), "b");
}

TEST(LineMuxOptionsTest, TimestampsComeFirst) {
  LineMux mux(Stream::out, 1, {.prefix = true, .timestamps = true});
  EXPECT_THAT(mux.feed(0, "a\n", kNow + std::chrono::milliseconds(1234)),
              testing::ContainsRegex("^....-..-.. ..:..:..\\.234 \\[0\\]<stdout>:a\n$"));
}

}  // namespace
}  // namespace hvd::launcher
