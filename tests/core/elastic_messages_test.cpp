#include <functional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hvd_test/errors.hpp>

#include <hvd/core/internal/elastic_messages.hpp>

namespace hvd::detail {
namespace {

using test::error_of;
using testing::HasSubstr;

Assignment assignment() { return {7, {"HVD_RANK=0", "HVD_SIZE=2", "HVD_STORE=unix:@a=b", "X="}}; }

Bytes without_last(Bytes bytes) {
  bytes.pop_back();
  return bytes;
}

Bytes with(Bytes bytes, std::size_t position, int value) {
  bytes.at(position) = std::byte(value);
  return bytes;
}

TEST(ElasticMessages, EachComesBackAsItWent) {
  for (const Waits& waits : {Waits{}, Waits{7, 2, true, false}, Waits{7, -1, false, true},
                             Waits{7, -1, false, false, true}}) {
    EXPECT_EQ(decode_waits(encode(waits)), waits);
  }
  for (const ElasticOrder& order : {ElasticOrder(assignment()), ElasticOrder(Change{}),
                                    ElasticOrder(Leave{}), ElasticOrder(Stop{})}) {
    EXPECT_EQ(decode_elastic_order(encode(order)), order);
  }
}

TEST(ElasticMessages, AnAssignmentMayBeAsLargeAsTheBoundsSay) {
  Assignment most{1, {}};
  for (int i = 0; i < 15; ++i) {
    most.variables.push_back(std::string(1, static_cast<char>('A' + i)) + "=" +
                             std::string(kMaxElasticVariable - 2, 'x'));
  }
  const Bytes bytes = encode(ElasticOrder(most));
  EXPECT_LE(bytes.size(), kMaxElasticMessage);
  EXPECT_EQ(decode_elastic_order(bytes), ElasticOrder(most));
}

struct Bad {
  std::string says;
  ElasticOrder order;
};

TEST(ElasticMessages, AnAssignmentOutOfBoundsIsNotEncoded) {
  const std::string longest(kMaxElasticVariable, 'x');
  std::vector<std::string> many;
  std::vector<std::string> large;
  for (std::size_t i = 0; i <= kMaxElasticVariables; ++i) {
    many.push_back("V" + std::to_string(i) + "=");
    if (i < 20) large.push_back("V" + std::to_string(i) + "=" + std::string(1'000, 'x'));
  }
  const std::vector<Bad> all = {{"generation 0", Assignment{0, {}}},
                                {"65 variables", Assignment{1, many}},
                                {"bytes", Assignment{1, large}},
                                {"not like NAME=value", Assignment{1, {"HVD_RANK"}}},
                                {"not like NAME=value", Assignment{1, {"=1"}}},
                                {"not like NAME=value", Assignment{1, {"A B=1"}}},
                                {"A is too long", Assignment{1, {"A=" + longest}}},
                                {"A has a NUL", Assignment{1, {std::string("A=\0", 3)}}},
                                {"A is there twice", Assignment{1, {"A=1", "A=2"}}}};
  for (const Bad& bad : all) {
    const Error error = error_of([&] { static_cast<void>(encode(bad.order)); });
    EXPECT_EQ(error.code(), Errc::invalid_argument);
    EXPECT_THAT(error.what(), HasSubstr(bad.says));
  }
}

TEST(ElasticMessages, BlameThatMakesNoSenseIsNotEncoded) {
  for (const Waits& waits : {Waits{1, -2, false, false}, Waits{0, 1, false, false},
                             Waits{1, -1, true, false}, Waits{0, -1, false, false, true}}) {
    EXPECT_EQ(error_of([&] { static_cast<void>(encode(waits)); }).code(), Errc::invalid_argument);
  }
}

TEST(ElasticMessages, MalformedBytesAreRefused) {
  const Bytes waits = encode(Waits{7, 2, true, true});
  const Bytes order = encode(ElasticOrder(assignment()));
  Bytes longer = waits;
  longer.push_back(std::byte{0});
  for (const Bytes& bytes :
       {Bytes{}, without_last(waits), longer, order, with(waits, 9, 2), with(waits, 10, 2),
        with(waits, 8, 0x80), Bytes(kMaxElasticMessage + 1)}) {
    EXPECT_EQ(error_of([&] { static_cast<void>(decode_waits(bytes)); }).code(), Errc::protocol);
  }
  for (const Bytes& bytes :
       {Bytes{}, without_last(order), waits, with(order, 5, 0xff), with(order, 1, 0),
        Bytes{std::byte('c'), std::byte(0)}, Bytes(kMaxElasticMessage + 1, std::byte('c'))}) {
    EXPECT_EQ(error_of([&] { static_cast<void>(decode_elastic_order(bytes)); }).code(),
              Errc::protocol);
  }
}

}  // namespace
}  // namespace hvd::detail
