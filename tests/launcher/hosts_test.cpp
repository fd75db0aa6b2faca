#include "hosts.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "exit_codes.hpp"
#include "this_host.hpp"

namespace hvd::launcher {
namespace {

using Hosts = std::vector<HostSpec>;

TEST(HostsTest, NamesAndSlots) {
  EXPECT_EQ(parse_hosts("localhost"), (Hosts{{"localhost", 1}}));
  EXPECT_EQ(parse_hosts("localhost:4"), (Hosts{{"localhost", 4}}));
  EXPECT_EQ(parse_hosts("a:2,b-1.example.org:16"), (Hosts{{"a", 2}, {"b-1.example.org", 16}}));
  EXPECT_EQ(parse_hosts("10.0.0.7:2"), (Hosts{{"10.0.0.7", 2}}));
  EXPECT_EQ(parse_hosts("[::1],[fe80::2]:3"), (Hosts{{"::1", 1}, {"fe80::2", 3}}));
}

TEST(HostsTest, SlotsOfDuplicatesAreSummed) {
  EXPECT_EQ(parse_hosts("b:2,a,B:3,a:1"), (Hosts{{"b", 5}, {"a", 2}}));
}

TEST(HostsTest, LabelsHaveTheirLimits) {
  EXPECT_TRUE(is_host_name(std::string(63, 'x')));
  EXPECT_FALSE(is_host_name(std::string(64, 'x')));
  const std::string label(62, 'x');
  const std::string four = label + "." + label + "." + label + "." + label;
  EXPECT_TRUE(is_host_name(four));         // 251
  EXPECT_TRUE(is_host_name(four + ".x"));  // 253
  EXPECT_FALSE(is_host_name(four + ".xx"));
}

class HostileHostTest : public testing::TestWithParam<const char*> {};

TEST_P(HostileHostTest, IsAUsageErrorOfOneLine) {
  try {
    (void)parse_hosts(GetParam());
    FAIL() << "accepted";
  } catch (const LaunchError& error) {
    EXPECT_EQ(error.code(), kExitUsage);
    EXPECT_THAT(error.what(), testing::Not(testing::HasSubstr("\n")));
  }
}

INSTANTIATE_TEST_SUITE_P(Strings, HostileHostTest,
                         testing::Values("", ",", "a,", ",a", "a,,b", ":2", "a:", "a:0", "a:-1",
                                         "a:x", "a:2x", "a: 2", "a:99999999999", "a:65537", "a:1:2",
                                         "-a", "--", "-oProxyCommand=x", "a-", "a.", ".a", "a..b",
                                         "a b", " a", "a ", "a;b", "$(id)", "`id`", "a|b", "a&b",
                                         "a>b", "a\nb", "a\tb", "a/b", "../a", "a\\b", "'a'",
                                         "\"a\"", "a*", "a_b", "user@a", "a#b", "a%b", "[::1",
                                         "::1]", "[]", "[::1]x", "[::1]2", "[::g]",
                                         "[::1]:", "[127.0.0.1]", "\xc3\xa4", "a\x7f", "~", "!"));

TEST(ThisHostTest, KnowsItsNamesAndNoOthers) {
  EXPECT_TRUE(is_this_host("localhost"));
  EXPECT_TRUE(is_this_host("LocalHost"));
  EXPECT_TRUE(is_this_host("127.0.0.1"));
  EXPECT_TRUE(is_this_host("::1"));
  EXPECT_TRUE(is_this_host("0:0:0:0:0:0:0:1"));
  EXPECT_TRUE(is_this_host(own_host_name()));
  EXPECT_FALSE(is_this_host("192.0.2.1"));
  EXPECT_FALSE(is_this_host("no-such-host.invalid"));
}

}  // namespace
}  // namespace hvd::launcher
