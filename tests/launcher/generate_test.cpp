#include "generate.hpp"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hvd_test/process.hpp>

#include "exit_codes.hpp"

namespace hvd::launcher {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Not;

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const auto end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

/// What bash offers for the last of `words`.
std::vector<std::string> offered(const std::vector<std::string>& words) {
  std::string array;
  for (const std::string& word : words) array += " '" + word + "'";
  test::ProcessOptions options;
  options.arguments = {"bash", "--norc", "-c",
                       bash_completion(list_options()) + "\nCOMP_WORDS=(" + array +
                           ")\nCOMP_CWORD=" + std::to_string(words.size() - 1) +
                           "\n_hvdrun\nprintf '%s\\n' \"${COMPREPLY[@]}\""};
  const auto result = test::run_process(std::move(options), test::in(std::chrono::seconds{30}));
  EXPECT_EQ(result.err, "");
  return lines_of(result.out);
}

TEST(OptionListTest, HasEveryOptionOfTheHelpAndNoOther) {
  const std::string help = help_text();
  std::size_t in_help = 0;
  for (const std::string& line : lines_of(help)) {
    if (line.starts_with("  -")) ++in_help;
  }
  const auto options = list_options();
  EXPECT_EQ(options.size(), in_help);
  for (const OptionInfo& option : options) {
    EXPECT_FALSE(option.text.empty());
    for (const std::string& name : option.names) EXPECT_THAT(help, HasSubstr(name));
  }
  const auto names_it = [](const char* name) {
    return [name](const OptionInfo& option) {
      return std::find(option.names.begin(), option.names.end(), name) != option.names.end();
    };
  };
  for (const char* name :
       {"-np", "--num-proc", "-H", "--hosts", "-x", "--config-file", "--status"}) {
    EXPECT_TRUE(std::any_of(options.begin(), options.end(), names_it(name))) << name;
  }
  EXPECT_FALSE(std::any_of(options.begin(), options.end(), names_it("--generate")));
}

TEST(OptionListTest, ChoicesAreThoseThatAreAccepted) {
  for (const OptionInfo& option : list_options()) {
    if (option.names.back() != "--launcher") continue;
    for (const std::string& choice : option.choices) {
      EXPECT_NO_THROW((void)parse_options({"-np", "1", "--launcher", choice, "x"})) << choice;
    }
    EXPECT_EQ(option.choices.size(), 5U);
  }
}

TEST(CompletionTest, OffersOptionsValuesAndThenPrograms) {
  EXPECT_THAT(offered({"hvdrun", "--h"}),
              testing::AllOf(Contains("--hosts"), Contains("--help"), Not(Contains("--grace"))));
  EXPECT_THAT(offered({"hvdrun", "-np", "2", "--launcher", "s"}),
              testing::UnorderedElementsAre("ssh", "slurm"));
  EXPECT_THAT(offered({"hvdrun", "-np", "2", "ba"}), Contains("bash"));
  EXPECT_THAT(offered({"hvdrun", "-np", "2", "bash", "--h"}), Not(Contains("--hosts")));
  EXPECT_THAT(offered({"hvdrun", "-np", "2", "--hostfile", "/etc/pass"}), Contains("/etc/passwd"));
}

TEST(CompletionTest, EveryOptionIsOffered) {
  const auto all = offered({"hvdrun", "-"});
  for (const OptionInfo& option : list_options()) {
    for (const std::string& name : option.names) EXPECT_THAT(all, Contains(name));
  }
}

TEST(ManPageTest, HasEveryOptionAndExitCode) {
  const std::string page = man_page(list_options(), "1.2.3");
  EXPECT_THAT(page, HasSubstr("hvd 1.2.3"));
  for (const OptionInfo& option : list_options()) {
    for (std::string name : option.names) {
      for (auto at = name.find('-'); at != std::string::npos; at = name.find('-', at + 2)) {
        name.insert(at, "\\");
      }
      EXPECT_THAT(page, HasSubstr("\\fB" + name + "\\fR"));
    }
  }
  for (const int code : {kExitUsage, kExitHostUnreachable, kExitInternal, kExitResource,
                         kExitProtocol, kExitUnauthenticated, kExitDeadline}) {
    EXPECT_THAT(page, HasSubstr(".B " + std::to_string(code) + "\n"));
  }
  for (const std::string& line : lines_of(page)) {
    if (line.starts_with(".")) {
      EXPECT_TRUE(line.starts_with(".TH ") || line.starts_with(".SH ") || line == ".TP" ||
                  line == ".PP" || line == ".br" || line.starts_with(".B ") ||
                  line.starts_with(".I ") || line.starts_with(".BR "))
          << line;
    }
  }
}

}  // namespace
}  // namespace hvd::launcher
