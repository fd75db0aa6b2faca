#include <gmock/gmock.h>

#include <hvd/core/internal/address.hpp>

#include "expect_error.hpp"

namespace hvd {
namespace {

TEST(Address, GoodOnesRoundTrip) {
  for (const std::string text :
       {"unix:@name", "unix:@", "unix:/run/user/0/hvd.sock", "tcp:127.0.0.1:0",
        "tcp:localhost:65535", "tcp:node-07.cluster.example:4321", "tcp:my_trainer_1:4321",
        "tcp:[::1]:80", "tcp:[fd00::1:2]:1", "tcp:a:1"}) {
    EXPECT_EQ(Address::parse(text).to_string(), text);
  }
}

TEST(Address, PartsAreTakenApart) {
  const Address v6 = Address::parse("tcp:[::1]:80");
  EXPECT_EQ(v6.kind, Address::Kind::tcp);
  EXPECT_EQ(v6.host, "::1");
  EXPECT_EQ(v6.port, 80);
  const Address local = Address::parse("unix:@x:1");
  EXPECT_EQ(local.kind, Address::Kind::unix_socket);
  EXPECT_EQ(local.host, "@x:1");
}

TEST(Address, BadOnesAreRefusedAndQuoted) {
  const std::string long_label(64, 'a');
  const std::string long_unix = "unix:@" + std::string(108, 'u');
  for (const std::string& text : std::vector<std::string>{"",
                                                          "tcp",
                                                          "tcp:",
                                                          "tcp::1",
                                                          "tcp:host",
                                                          "tcp:host:",
                                                          "tcp:host:-1",
                                                          "tcp:host:+1",
                                                          "tcp:host:65536",
                                                          "tcp:host:1x",
                                                          "tcp:host: 1",
                                                          "tcp:host:080",
                                                          "tcp:-host:1",
                                                          "tcp:host-:1",
                                                          "tcp:-oProxyCommand=x:1",
                                                          "tcp:ho st:1",
                                                          "tcp:host\n:1",
                                                          "tcp:a..b:1",
                                                          "tcp:.a:1",
                                                          "tcp:a.:1",
                                                          "tcp:ho;st:1",
                                                          "tcp:$(id):1",
                                                          "tcp:::1:80",
                                                          "tcp:[::1:80",
                                                          "tcp:::1]:80",
                                                          "tcp:[]:80",
                                                          "tcp:[host]:80",
                                                          "tcp:[::1%eth0]:80",
                                                          "tcp:" + long_label + ":1",
                                                          "tcp:" + std::string(260, 'a') + ":1",
                                                          "unix:",
                                                          "unix:name",
                                                          "unix:relative/path",
                                                          "unix:@a b",
                                                          "unix:/a\tb",
                                                          long_unix,
                                                          "UNIX:@a",
                                                          "udp:host:1",
                                                          "http://host:1",
                                                          std::string("tcp:host\0:1", 11),
                                                          std::string("unix:@a\0b", 9)}) {
    const std::string message = test::expect_error(
        Errc::invalid_argument, [&] { static_cast<void>(Address::parse(text)); });
    EXPECT_THAT(message, testing::StartsWith("address '")) << text;
    // The message must not contain control characters of a terminal.
    for (const char c : message) EXPECT_FALSE(static_cast<unsigned char>(c) < ' ') << text;
  }
}

}  // namespace
}  // namespace hvd
