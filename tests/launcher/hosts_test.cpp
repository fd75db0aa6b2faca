#include "plan/hosts.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/exit_codes.hpp"
#include "plan/cpus.hpp"
#include "plan/this_host.hpp"

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

TEST(HostsTest, DiscoveredHosts) {
  EXPECT_EQ(parse_discovered_hosts("a:2\n\n  b \r\nme@c:1\n[::1]:3\nA:1\n", 4),
            (Hosts{{"a", 3}, {"b", 4}, {"c", 1, "me"}, {"::1", 3}}));
  EXPECT_EQ(parse_discovered_hosts(" \n\n", 4), Hosts());
  for (const char* line : {"a b", "a:0", "a:x", "a,b", "# a", "a:2:3", "Error: no nodes"}) {
    try {
      (void)parse_discovered_hosts(std::string("a:2\n") + line + "\n", 4);
      ADD_FAILURE() << "accepted " << line;
    } catch (const LaunchError& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("'" + std::string(line) + "'"));
    }
  }
}

TEST(HostsTest, Users) {
  EXPECT_EQ(parse_hosts("me@a:2,j.doe_1@[::1]:3"), (Hosts{{"a", 2, "me"}, {"::1", 3, "j.doe_1"}}));
  EXPECT_EQ(parse_hosts("me@a,you@a,me@A"), (Hosts{{"a", 2, "me"}, {"a", 1, "you"}}));
}

TEST(HostsTest, Hostfiles) {
  EXPECT_EQ(
      parse_hostfile("# all\na slots=2 # two\r\n\n\t b:3\nme@c\n[::1] slots=4 max_slots=8\na", "f"),
      (Hosts{{"a", 3}, {"b", 3}, {"c", 1, "me"}, {"::1", 4}}));
}

TEST(HostsTest, MistakesInHostfilesAreNamedWithTheirLine) {
  for (const char* text : {"a\nb slots\n", "a\nb slots=x\n", "a\nb cpus=2\n", "a\n-b\n",
                           "a\nb slots=0\n", "a\nb c\n", "a\nb slots=2 c\n"}) {
    try {
      (void)parse_hostfile(text, "my hosts");
      ADD_FAILURE() << "accepted " << text;
    } catch (const LaunchError& error) {
      EXPECT_EQ(error.code(), kExitUsage);
      EXPECT_THAT(error.what(), testing::HasSubstr("'my hosts', line 2: "));
    }
  }
  EXPECT_THROW((void)parse_hostfile("# nothing\n", "f"), LaunchError);
  EXPECT_THROW((void)read_hostfile("/no/such/file"), LaunchError);
  EXPECT_THROW((void)read_hostfile("/"), LaunchError);
}

TEST(HostsTest, SlotsOfDuplicatesAreSummed) {
  EXPECT_EQ(parse_hosts("b:2,a,B:3,a:1"), (Hosts{{"b", 5}, {"a", 2}}));
}

TEST(HostsTest, UnderscoresAreTakenAsResolversTakeThem) {
  EXPECT_EQ(parse_hosts("my_trainer_1:2,me@_b_"), (Hosts{{"my_trainer_1", 2}, {"_b_", 1, "me"}}));
  EXPECT_FALSE(is_host_name("-a_b"));
  EXPECT_FALSE(is_host_name("a_b-"));
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

INSTANTIATE_TEST_SUITE_P(
    Strings, HostileHostTest,
    testing::Values("", ",", "a,", ",a", "a,,b", ":2", "a:", "a:0", "a:-1", "a:x", "a:2x", "a: 2",
                    "a:99999999999", "a:65537", "a:1:2", "-a", "--", "-oProxyCommand=x", "a-", "a.",
                    ".a", "a..b", "a b", " a", "a ", "a;b", "$(id)", "`id`", "a|b", "a&b", "a>b",
                    "a\nb", "a\tb", "a/b", "../a", "a\\b", "'a'", "\"a\"", "a*", "@a", "a@", "-u@a",
                    "u@-a", "u u@a", "u;v@a", "$(id)@a", "u@v@a", ".u@a", "u@a:x", "u@", "u@[a]",
                    "a#b", "a%b", "[::1", "::1]", "[]", "[::1]x", "[::1]2", "[::g]",
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

TEST(KnownHostsTest, HostsKeepTheirNumbers) {
  using testing::ElementsAre;
  KnownHosts hosts;
  EXPECT_THAT(hosts.list({{"a", 2}, {"b", 1}}), ElementsAre(2, 1));
  EXPECT_THAT(hosts.list({{"c", 3}, {"B", 4}, {"a", 5, "user"}}), ElementsAre(0, 4, 3, 5));
  EXPECT_THAT(hosts.list({}), ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(hosts.all(), ElementsAre(HostSpec{"a", 2}, HostSpec{"b", 4}, HostSpec{"c", 3},
                                       HostSpec{"a", 5, "user"}));
}

TEST(CpuQuotaTest, CoresOfAQuotaAreRoundedUp) {
  EXPECT_EQ(cores_of("max 100000"), std::nullopt);
  EXPECT_EQ(cores_of("-1 100000"), std::nullopt);
  EXPECT_EQ(cores_of(""), std::nullopt);
  EXPECT_EQ(cores_of("100000 100000"), 1);
  EXPECT_EQ(cores_of("150000 100000"), 2);
  EXPECT_EQ(cores_of("20000 100000"), 1);
  EXPECT_EQ(cores_of("800000 100000"), 8);
  EXPECT_GE(cores_of("99999999999999999 1").value_or(0), 1000);
}

TEST(CpuQuotaTest, FoldersOfBothVersionsInnermostFirst) {
  using testing::ElementsAre;
  EXPECT_THAT(quota_folders("0::/a/b\n", "/r"), ElementsAre("/r/a/b", "/r/a", "/r"));
  EXPECT_THAT(quota_folders("0::/\n", "/r"), ElementsAre("/r"));
  EXPECT_THAT(quota_folders("5:cpuset:/x\n4:cpu,cpuacct:/d\n1:name=systemd:/s\n", "/r"),
              ElementsAre("/r/cpu,cpuacct/d", "/r/cpu,cpuacct"));
  EXPECT_THAT(quota_folders("0::/../x\n", "/r"), ElementsAre("/r"));
  EXPECT_THAT(quota_folders("nonsense\n", "/r"), ElementsAre());
}

}  // namespace
}  // namespace hvd::launcher
