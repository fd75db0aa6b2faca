#include "store/store_protocol.hpp"

#include <gmock/gmock.h>

#include "expect_error.hpp"

namespace hvd {
namespace {

using namespace detail;  // NOLINT: a test
using test::bytes_of;
using test::expect_error;

const std::vector<StoreRequest> kRequests{{1, StoreVerb::set, "job/0/key", bytes_of("value"), 0},
                                          {2, StoreVerb::get, "k", {}, 0},
                                          {3, StoreVerb::wait, std::string(416, 'k'), {}, 0},
                                          {4, StoreVerb::wait_all, "k/", {}, 7}};
const std::vector<StoreReply> kReplies{{1, StoreOutcome::done, {}},
                                       {2, StoreOutcome::value, bytes_of("value")},
                                       {3, StoreOutcome::missing, {}},
                                       {4, StoreOutcome::full, {}}};

TEST(StoreProtocol, RoundTrip) {
  for (const StoreRequest& request : kRequests) {
    const StoreRequest back = decode_store_request(encode(request));
    EXPECT_EQ(back.id, request.id);
    EXPECT_EQ(back.verb, request.verb);
    EXPECT_EQ(back.key, request.key);
    EXPECT_EQ(back.value, request.value);
  }
  for (const StoreReply& reply : kReplies) {
    const StoreReply back = decode_store_reply(encode(reply));
    EXPECT_EQ(back.id, reply.id);
    EXPECT_EQ(back.outcome, reply.outcome);
    EXPECT_EQ(back.value, reply.value);
  }
}

TEST(StoreProtocol, EveryTruncationAndExtensionThrows) {
  const auto check = [](const Bytes& whole, auto decode) {
    for (std::size_t size = 0; size < whole.size(); ++size) {
      expect_error(Errc::protocol, [&] { decode(std::span(whole).first(size)); });
    }
    Bytes longer = whole;
    longer.push_back(std::byte{0});
    expect_error(Errc::protocol, [&] { decode(longer); });
  };
  for (const StoreRequest& request : kRequests) {
    check(encode(request), [](auto bytes) { static_cast<void>(decode_store_request(bytes)); });
  }
  for (const StoreReply& reply : kReplies) {
    check(encode(reply), [](auto bytes) { static_cast<void>(decode_store_reply(bytes)); });
  }
}

TEST(StoreProtocol, NonsenseThrows) {
  for (const StoreRequest& bad :
       std::vector<StoreRequest>{{1, static_cast<StoreVerb>(0), "k", {}},
                                 {1, static_cast<StoreVerb>(5), "k", {}},
                                 {1, StoreVerb::get, "", {}},
                                 {1, StoreVerb::get, "a b", {}},
                                 {1, StoreVerb::get, std::string("a\0b", 3), {}},
                                 {1, StoreVerb::get, std::string(417, 'k'), {}},
                                 {1, StoreVerb::set, "k", Bytes(kMaxStoreValue + 1)}}) {
    expect_error(Errc::protocol, [&] { static_cast<void>(decode_store_request(encode(bad))); });
  }
}

}  // namespace
}  // namespace hvd
