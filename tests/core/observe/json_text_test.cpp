#include "observe/json_text.hpp"

#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace hvd::observe {
namespace {

std::string json_string(std::string_view text, std::size_t most = std::string::npos) {
  std::string to;
  append_json_string(to, text, most);
  return to;
}

std::string read_back(std::string_view text) {
  return nlohmann::json::parse(json_string(text)).get<std::string>();
}

TEST(JsonText, KeepsWhatIsUtf8) {
  std::string all;
  for (int c = 0; c < 128; ++c) all += static_cast<char>(c);
  all += "größe 梯度 🙂 \xED\x9F\xBF \xEE\x80\x80 \xF4\x8F\xBF\xBF";
  EXPECT_EQ(read_back(all), all);
}

TEST(JsonText, ShowsBytesThatAreNot) {
  EXPECT_EQ(read_back("a\xFFz"), "a\\xffz");
  EXPECT_EQ(read_back("\xC3"), "\\xc3");                             // cut short
  EXPECT_EQ(read_back("\xC0\xAF"), "\\xc0\\xaf");                    // overlong
  EXPECT_EQ(read_back("\xED\xA0\x80"), "\\xed\\xa0\\x80");           // a surrogate
  EXPECT_EQ(read_back("\xF4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");  // above U+10FFFF
  EXPECT_EQ(read_back("\xE2\x82"
                      "A"),
            "\\xe2\\x82"
            "A");
}

TEST(JsonText, AnyTwoBytesAreValidJson) {
  for (int first = 0; first < 256; ++first) {
    for (int second = 0; second < 256; ++second) {
      const std::string text = {static_cast<char>(first), static_cast<char>(second)};
      ASSERT_TRUE(nlohmann::json::accept(json_string(text))) << first << " " << second;
    }
  }
}

TEST(JsonText, CutsLongTextBetweenCharacters) {
  for (std::size_t most = 8; most < 40; ++most) {
    std::string text;
    for (int i = 0; i < 20; ++i) text += "ü\"\x01\xFF";
    const std::string cut = json_string(text, most);
    EXPECT_TRUE(nlohmann::json::accept(cut)) << cut;
    EXPECT_LE(cut.size(), most + 4);
    EXPECT_TRUE(cut.ends_with("…\"")) << cut;
  }
}

TEST(JsonText, LabelValuesEscapeWhatTheFormatEscapes) {
  std::string to;
  append_label_value(to,
                     "a\"b\\c\nd\xFF"
                     "ü");
  EXPECT_EQ(to, "\"a\\\"b\\\\c\\nd\\\\xffü\"");
}

}  // namespace
}  // namespace hvd::observe
