#include "net/interfaces.hpp"

#include <gmock/gmock.h>

#include "expect_error.hpp"

namespace hvd::net {
namespace {

using test::expect_error;

const std::vector<InterfaceAddress> kMachine{
    {"lo", "127.0.0.1", true},      {"lo", "::1", true},         {"docker0", "172.17.0.1", false},
    {"eth1", "2001:db8::5", false}, {"eth0", "10.1.2.3", false}, {"ib0", "192.168.9.1", false}};

TEST(Interfaces, WithoutAWishLoopbackOrTheFirstRealOne) {
  EXPECT_EQ(choose_address(kMachine, "", true), "127.0.0.1");
  EXPECT_EQ(choose_address(kMachine, "", false), "10.1.2.3");
  const std::vector<InterfaceAddress> v6{{"lo", "127.0.0.1", true}, {"eth1", "2001:db8::5", false}};
  EXPECT_EQ(choose_address(v6, "", false), "2001:db8::5");
}

TEST(Interfaces, TheFirstWishThatMatchesDecides) {
  EXPECT_EQ(choose_address(kMachine, "ib0", false), "192.168.9.1");
  EXPECT_EQ(choose_address(kMachine, "ib0", true), "192.168.9.1");
  EXPECT_EQ(choose_address(kMachine, "ib7, 192.168.0.0/16,eth0", false), "192.168.9.1");
  EXPECT_EQ(choose_address(kMachine, "2001:db8::/32", false), "2001:db8::5");
  EXPECT_EQ(choose_address(kMachine, "docker0", false), "172.17.0.1");
}

TEST(Interfaces, NoMatchIsAnErrorThatListsWhatThereIs) {
  const std::string text = expect_error(
      Errc::invalid_argument, [] { static_cast<void>(choose_address(kMachine, "ib7", false)); });
  EXPECT_THAT(text, testing::AllOf(testing::HasSubstr("ib7"), testing::HasSubstr("eth0 10.1.2.3")));
  const std::vector<InterfaceAddress> lonely{{"lo", "127.0.0.1", true}};
  expect_error(Errc::invalid_argument,
               [&] { static_cast<void>(choose_address(lonely, "", false)); });
}

TEST(Interfaces, Blocks) {
  EXPECT_TRUE(in_block("10.1.2.3", "10.0.0.0/8"));
  EXPECT_TRUE(in_block("10.1.2.3", "10.1.2.3/32"));
  EXPECT_TRUE(in_block("10.1.2.3", "0.0.0.0/0"));
  EXPECT_TRUE(in_block("10.127.0.1", "10.64.0.0/10"));
  EXPECT_FALSE(in_block("10.128.0.1", "10.64.0.0/10"));
  EXPECT_FALSE(in_block("::1", "0.0.0.0/0"));
  EXPECT_TRUE(in_block("fd00::1", "fd00::/8"));
  EXPECT_FALSE(in_block("fe00::1", "fd00::/8"));
  for (const std::string_view bad : {"10.0.0.0", "10.0.0.0/", "10.0.0.0/33", "10.0.0.0/-1",
                                     "10.0.0.0/8x", "ten/8", "/8", "::/129"}) {
    expect_error(Errc::invalid_argument, [&] { static_cast<void>(in_block("10.0.0.1", bad)); });
  }
}

TEST(Interfaces, ThisMachineHasLoopback) {
  const std::vector<InterfaceAddress> here = list_interfaces();
  EXPECT_TRUE(std::any_of(here.begin(), here.end(),
                          [](const InterfaceAddress& one) { return one.loopback; }));
  EXPECT_EQ(listen_address("", true), "tcp:127.0.0.1:0");
}

}  // namespace
}  // namespace hvd::net
