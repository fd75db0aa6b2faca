// Tests bytes and torch archives of any size on every rank, and what is refused.
#include <gmock/gmock.h>
#include <torch/script.h>

#include "collectives/archive_bytes.hpp"
#include "job.hpp"

namespace hvd::object_test {
namespace {

using namespace test;    // NOLINT: a test
using namespace detail;  // NOLINT: a test
using testing::HasSubstr;

class Objects : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Objects, testing::Values(1, 2, 3, 4));

std::string text_of(int rank) {
  return std::string(static_cast<std::size_t>(rank) * 1000, static_cast<char>('a' + rank));
}

TEST_P(Objects, BytesFromEveryRootAlsoNone) {
  on_ranks(GetParam(), [](Context& context) {
    for (int root = 0; root < context.size(); ++root) {
      EXPECT_EQ(broadcast_object(text_of(context.rank()), root, {.context = &context}),
                text_of(root));
      const Bytes mine(static_cast<std::size_t>(context.rank() + 3), std::byte{0});
      EXPECT_EQ(broadcast_object(mine, root, {.name = "b", .context = &context}).size(),
                static_cast<std::size_t>(root + 3));
    }
  });
}

TEST_P(Objects, GatheredInRankOrder) {
  on_ranks(GetParam(), [](Context& context) {
    const std::vector<std::string> texts =
        allgather_object(text_of(context.rank()), {.context = &context});
    const Bytes mine(static_cast<std::size_t>(context.rank()), std::byte{7});
    const std::vector<Bytes> bytes = allgather_object(mine, {.name = "bytes", .context = &context});
    ASSERT_EQ(texts.size(), static_cast<std::size_t>(context.size()));
    ASSERT_EQ(bytes.size(), texts.size());
    for (int rank = 0; rank < context.size(); ++rank) {
      const auto at = static_cast<std::size_t>(rank);
      EXPECT_EQ(texts[at], text_of(rank));
      EXPECT_EQ(bytes[at], Bytes(at, std::byte{7}));
    }
  });
}

torch::serialize::OutputArchive archive_for(int rank) {
  torch::serialize::OutputArchive archive;
  archive.write("tensor", torch::arange(10) * (rank + 1));
  archive.write("rank", c10::IValue(rank));
  archive.write("text", c10::IValue(std::string("default ") + std::to_string(rank)));
  return archive;
}

void expect_archive_of(int rank, torch::serialize::InputArchive& archive) {
  torch::Tensor tensor;
  c10::IValue number;
  c10::IValue text;
  archive.read("tensor", tensor);
  archive.read("rank", number);
  archive.read("text", text);
  EXPECT_TRUE(torch::equal(tensor, torch::arange(10) * (rank + 1)));
  EXPECT_EQ(number.toInt(), rank);
  EXPECT_EQ(text.toStringRef(), std::string("default ").append(std::to_string(rank)));
}

TEST_P(Objects, ArchivesToAllAndFromAll) {
  on_ranks(GetParam(), [](Context& context) {
    torch::serialize::OutputArchive mine = archive_for(context.rank());
    torch::serialize::InputArchive last =
        broadcast_object(mine, context.size() - 1, {.context = &context});
    expect_archive_of(context.size() - 1, last);
    auto all = allgather_object(mine, {.context = &context});
    for (int rank = 0; rank < context.size(); ++rank) {
      expect_archive_of(rank, all[static_cast<std::size_t>(rank)]);
    }
  });
}

TEST_P(Objects, InPlaceForWhateverTorchSaves) {
  on_ranks(GetParam(), [](Context& context) {
    const torch::NoGradGuard no_grad;
    torch::Tensor tensor = torch::full({3}, context.rank());
    broadcast_object_(tensor, context.size() - 1, {.context = &context});
    EXPECT_TRUE(torch::equal(tensor, torch::full({3}, context.size() - 1)));

    torch::nn::Linear layer(2, 2);
    layer->weight.fill_(context.rank() + 1);
    broadcast_object_(layer, 0, {.context = &context});
    EXPECT_TRUE(layer->weight.eq(1).all().item<bool>());

    // The size differs between ranks, which a collective of tensors could not carry.
    torch::Tensor rows = torch::ones({context.rank() + 1, 2});
    broadcast_object_(rows, 0, {.context = &context});
    EXPECT_EQ(rows.sizes(), torch::IntArrayRef({1, 2}));
  });
}

struct CannotBeSaved {};
[[maybe_unused]] torch::serialize::OutputArchive& operator<<(
    torch::serialize::OutputArchive& /*archive*/, const CannotBeSaved& /*value*/) {
  throw std::runtime_error("cannot be saved");
}
[[maybe_unused]] torch::serialize::InputArchive& operator>>(torch::serialize::InputArchive& archive,
                                                            CannotBeSaved& /*value*/) {
  return archive;
}

TEST_P(Objects, ARootThatCannotSaveLeavesNobodyWaiting) {
  on_ranks(GetParam(), [](Context& context) {
    CannotBeSaved value;
    if (context.rank() == 0) {
      EXPECT_THROW(broadcast_object_(value, 0, {.context = &context}), std::runtime_error);
    } else {
      EXPECT_EQ(code_of([&] { broadcast_object_(value, 0, {.context = &context}); }),
                Errc::protocol);
    }
    EXPECT_EQ(broadcast_object(std::string("after"), 0, {.context = &context}), "after");
  });
}

TEST_P(Objects, MoreThanAgreedIsRefusedOnEveryRank) {
  on_ranks(GetParam(), [](Context& context) {
    std::string message;
    const std::string large(1000, 'x');
    const ObjectOptions few{.name = "o", .max_bytes = 999, .context = &context};
    EXPECT_EQ(code_of([&] { (void)broadcast_object(large, 0, few); }, &message),
              Errc::invalid_argument);
    EXPECT_THAT(message, HasSubstr("1000 bytes, and max_bytes is 999"));
    // Each rank's part is allowed, but their sum is too large.
    const std::string part(999 / static_cast<std::size_t>(context.size()) + 1, 'x');
    EXPECT_EQ(code_of([&] { (void)allgather_object(part, few); }), Errc::invalid_argument);
    EXPECT_EQ(broadcast_object(std::string("after"), 0, few), "after");
  });
}

TEST_P(Objects, InAProcessSet) {
  if (GetParam() == 1) return;
  Job job(GetParam());
  job.run([](const Member& member) {
    const ObjectOptions half{.process_set = member.half.id, .context = &member.context};
    const std::vector<int> ranks = member.ranks(true);
    const int rank = member.context.rank();
    EXPECT_EQ(broadcast_object(text_of(rank), ranks.back(), half), text_of(ranks.back()));
    const auto all = allgather_object(text_of(rank), half);
    ASSERT_EQ(all.size(), ranks.size());
    for (std::size_t i = 0; i < ranks.size(); ++i) EXPECT_EQ(all[i], text_of(ranks[i]));
  });
}

Bytes saved(const torch::jit::Module& module) {
  std::stringstream out;
  module.save(out);
  const std::string text = out.str();
  const auto view = std::as_bytes(std::span(text));
  return {view.begin(), view.end()};
}

TEST(Archives, WithCodeAreRefusedBeforeTheyAreRead) {
  torch::jit::Module module("plain");
  module.register_parameter("weight", torch::ones({2}), false);
  EXPECT_NO_THROW((void)archive_of(saved(module), "data only"));

  module.define("def forward(self, x):\n  return x + self.weight\n");
  std::string message;
  EXPECT_EQ(code_of([&] { (void)archive_of(saved(module), "with code"); }, &message),
            Errc::protocol);
  EXPECT_THAT(message, HasSubstr("with code: the archive has TorchScript code"));

  // The method of a child module, in a file of its own or not.
  torch::jit::Module parent("parent");
  parent.register_module("child", module);
  EXPECT_EQ(code_of([&] { (void)archive_of(saved(parent), "child"); }), Errc::protocol);
}

TEST(Archives, ThatAreNoneAreATypedError) {
  torch::serialize::OutputArchive archive = archive_for(1);
  Bytes good = bytes_of(archive);
  torch::serialize::InputArchive read = archive_of(good, "good");
  expect_archive_of(1, read);

  EXPECT_EQ(code_of([] { (void)archive_of({}, "empty"); }), Errc::protocol);
  const Bytes noise(300, std::byte{0x5a});
  EXPECT_EQ(code_of([&] { (void)archive_of(noise, "noise"); }), Errc::protocol);
  for (std::size_t length = 1; length < good.size(); length += 61) {
    std::string message;
    const std::span<const std::byte> cut(good.data(), length);
    EXPECT_EQ(code_of([&] { (void)archive_of(cut, "cut"); }, &message), Errc::protocol) << length;
    EXPECT_THAT(message, HasSubstr("cut: not a torch archive"));
  }
  // A changed bit may be harmless, but the only exception may be an Error.
  for (std::size_t at = 0; at < good.size(); at += 29) {
    Bytes damaged = good;
    damaged[at] ^= std::byte{0x10};
    const auto code = code_of([&] { (void)archive_of(damaged, "damaged"); });
    EXPECT_EQ(code.value_or(Errc::protocol), Errc::protocol) << at;
  }
}

}  // namespace
}  // namespace hvd::object_test
