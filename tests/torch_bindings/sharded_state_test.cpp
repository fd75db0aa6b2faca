// Tests the state of a sharded optimizer in an archive: any number of ranks can load it, completely
// or not at all.
#include <cmath>
#include <filesystem>
#include <optional>
#include <sstream>

#include <gmock/gmock.h>

#include "sharded_kinds.hpp"

namespace hvd::sharded_state_test {
namespace {

using namespace test;  // NOLINT: a test
using testing::HasSubstr;
namespace optim = torch::optim;
using ShardedAdam = ShardedOptimizer<optim::Adam>;

constexpr int kSteps = 8;

std::string bytes_of(torch::serialize::OutputArchive& archive) {
  std::ostringstream stream;
  archive.save_to(stream);
  return stream.str();
}

torch::serialize::InputArchive archive_of(const std::string& bytes) {
  std::istringstream stream(bytes);
  torch::serialize::InputArchive archive;
  archive.load_from(stream);
  return archive;
}

/// Collective. The bytes are rank 0's.
std::string save(const optim::Optimizer& optimizer, const Context& context) {
  torch::serialize::OutputArchive archive;
  optimizer.save(archive);
  return context.rank() == 0 ? bytes_of(archive) : std::string();
}

void copy_values(torch::nn::Sequential& to, const std::vector<torch::Tensor>& from) {
  const torch::NoGradGuard no_grad;
  for (std::size_t i = 0; i < from.size(); ++i) to->parameters()[i].copy_(from[i]);
}

template <class Base>
class ShardedState : public testing::Test {};
TYPED_TEST_SUITE(ShardedState, ShardedKinds);

TYPED_TEST(ShardedState, IsLoadedByAnyNumberOfRanks) {
  const auto options = Settings<TypeParam>::options();
  auto reference = make_net(1);
  const auto start = values_of(reference);
  TypeParam alone(two_groups(reference, options), options);
  for (int step = 0; step < kSteps; ++step) {
    alone.zero_grad();
    loss_of(reference, global_batch(step)).backward();
    alone.step();
  }
  for (const auto& [before, after] : {std::pair(3, 2), std::pair(1, 4), std::pair(4, 1)}) {
    std::string saved;
    std::vector<torch::Tensor> half_way;
    on_ranks(before, [&, before = before](Context& context) {
      auto net = make_net(1);
      ShardedOptimizer<TypeParam> optimizer(two_groups(net, options), net->named_parameters(),
                                            options, {.bucket_bytes = 150, .context = &context});
      train_sharded(net, optimizer, context.rank(), before, 0, kSteps / 2);
      std::string mine = save(optimizer, context);
      if (context.rank() != 0) return;
      saved = std::move(mine);
      half_way = values_of(net);
    });
    Outcomes outcomes(after);
    on_ranks(after, [&, after = after](Context& context) {
      auto net = make_net(1);
      copy_values(net, half_way);
      // The archive's options must replace these.
      auto other = options;
      other.lr(options.lr() * 3);
      ShardedOptimizer<TypeParam> optimizer(two_groups(net, other), net->named_parameters(), other,
                                            {.context = &context});
      auto archive = archive_of(saved);
      optimizer.load(archive);
      EXPECT_EQ(optimizer.param_groups()[0].options().get_lr(), options.lr());
      EXPECT_EQ(optimizer.param_groups()[1].options().get_lr(), options.lr() / 2);
      train_sharded(net, optimizer, context.rank(), after, kSteps / 2, kSteps);
      outcomes.set(context.rank(), net);
    });
    outcomes.expect(values_of(reference), start);
  }
}

const auto kAdam = optim::AdamOptions(0.01).amsgrad(true);

/// Returns the archive with one entry replaced, or without it if the value is undefined.
std::string altered(const std::string& saved, const std::string& key,
                    const std::optional<c10::IValue>& value) {
  auto in = archive_of(saved);
  torch::serialize::OutputArchive out;
  bool found = false;
  for (const std::string& each : in.keys()) {
    c10::IValue kept;
    if (!in.try_read(each, kept)) continue;
    if (each == key) {
      found = true;
      if (!value) continue;
      kept = *value;
    }
    if (kept.isTensor()) {
      out.write(each, kept.toTensor());
    } else {
      out.write(each, kept);
    }
  }
  EXPECT_TRUE(found) << key;
  return bytes_of(out);
}

struct Damage {
  std::string key;
  std::optional<c10::IValue> value;
  std::string message;
};

TEST(ShardedStateOf, DamageIsNamedAndChangesNothing) {
  on_ranks(1, [](Context& context) {
    auto net = make_net(1);
    ShardedAdam optimizer(two_groups(net, kAdam), net->named_parameters(), kAdam,
                          {.bucket_bytes = 150, .context = &context});
    train_sharded(net, optimizer, 0, 1, 0, 3);
    const std::string saved = save(optimizer, context);
    // Other options and another state, which a bad archive must not change.
    optimizer.param_groups()[0].options().set_lr(0.5);
    train_sharded(net, optimizer, 0, 1, 3, 4);
    const std::string before = save(optimizer, context);
    ASSERT_NE(saved, before);

    auto in = archive_of(saved);
    torch::Tensor numbers;
    in.read("parameter_0_numbers", numbers);
    const auto with = [&](std::int64_t at, double number) {
      torch::Tensor other = numbers.clone();
      other[at] = number;
      return c10::IValue(other);
    };
    torch::Tensor options;
    in.read("options_1", options);
    torch::Tensor bad_options = options.clone();
    bad_options[5] = 2.0;  // amsgrad

    const std::vector<Damage> damages{
        {"format", c10::IValue(1), "has format 1, not 2"},
        {"format", c10::IValue("2"), "is damaged"},
        {"optimizer", std::nullopt, "holds no optimizer"},
        {"optimizer", c10::IValue("SGD"), "is of SGD, not Adam"},
        {"groups", c10::IValue(1), "has 1 parameter groups, not 2"},
        {"parameters", c10::IValue(5), "holds no parameter_4_name"},
        {"parameters", c10::IValue(3), "holds no parameter"},
        {"parameter_0_name", c10::IValue("other"), "holds no parameter"},
        {"parameter_0_name", c10::IValue(7), "is damaged"},
        {"parameter_1_shape", c10::IValue(std::vector<std::int64_t>{9}), "another shape for"},
        {"parameter_0_group", c10::IValue(1), "in group 1, not 0"},
        {"parameter_0_numbers", with(0, 7), "has made other steps"},
        {"parameter_2_numbers", with(0, std::nan("")), "no whole number"},
        {"parameter_2_numbers", with(0, 1e300), "no whole number"},
        {"parameter_2_numbers", with(1, 0.5), "neither 0 nor 1"},
        {"parameter_2_numbers", c10::IValue(numbers.narrow(0, 0, 2).clone()), "other fields"},
        {"parameter_2_numbers", c10::IValue(numbers.to(torch::kFloat32)), "other fields"},
        {"parameter_3_numbers", std::nullopt, "holds no parameter_3_numbers"},
        {"parameter_0_tensor_0", c10::IValue(torch::zeros({3})), "another shape or dtype"},
        {"parameter_3_tensor_2", std::nullopt, "holds no parameter_3_tensor_2"},
        {"options_1", c10::IValue(bad_options), "neither 0 nor 1"},
        {"options_1", std::nullopt, "holds no options_1"},
    };
    for (const auto& [key, value, wanted] : damages) {
      auto archive = archive_of(altered(saved, key, value));
      std::string message;
      EXPECT_EQ(code_of([&] { optimizer.load(archive); }, &message), Errc::invalid_argument) << key;
      EXPECT_THAT(message, HasSubstr(wanted)) << key;
      EXPECT_EQ(save(optimizer, context), before) << key << " was loaded in part";
    }
    auto archive = archive_of(saved);
    optimizer.load(archive);
    EXPECT_EQ(save(optimizer, context), saved);
  });
}

TEST(ShardedStateOf, SomethingElseIsNamedOnEveryRankAndTrainingGoesOn) {
  auto net_of_archive = make_net(1);
  torch::serialize::OutputArchive module;
  net_of_archive->save(module);
  optim::Adam adam(net_of_archive->parameters(), kAdam);
  torch::serialize::OutputArchive plain;
  adam.save(plain);
  const std::vector<std::string> foreign{bytes_of(module), bytes_of(plain)};
  on_ranks(3, [&](Context& context) {
    auto net = make_net(1);
    ShardedAdam optimizer(net->named_parameters(), kAdam, {.context = &context});
    for (const std::string& bytes : foreign) {
      auto archive = archive_of(bytes);
      std::string message;
      EXPECT_EQ(code_of([&] { optimizer.load(archive); }, &message), Errc::invalid_argument);
      EXPECT_THAT(message, HasSubstr("the archive holds no format"));
    }
    train_sharded(net, optimizer, context.rank(), 3, 0, 2);
    EXPECT_TRUE(verify(*net, context));
  });
}

TEST(ShardedStateOf, BeforeTheFirstStepIsNone) {
  on_ranks(2, [](Context& context) {
    auto net = make_net(1);
    ShardedAdam optimizer(net->named_parameters(), kAdam, {.context = &context});
    const std::string fresh =
        broadcast_object(save(optimizer, context), 0, {.name = "fresh", .context = &context});
    train_sharded(net, optimizer, context.rank(), 2, 0, 1);
    EXPECT_EQ(optimizer.state().size(), 1U);
    auto archive = archive_of(fresh);
    optimizer.load(archive);
    EXPECT_EQ(optimizer.state().size(), 0U);
  });
}

class ShardedCheckpoint : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, ShardedCheckpoint, testing::Values(1, 2, 3, 4));

TEST_P(ShardedCheckpoint, IsWrittenByAllRanksAndGoesOnWhereItWasSaved) {
  namespace fs = std::filesystem;
  std::string folder = (fs::temp_directory_path() / "hvd-sharded-XXXXXX").string();
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  const fs::path file = fs::path(folder) / "model.pt";
  on_ranks(GetParam(), [&](Context& context) {
    const int size = context.size();
    auto net = make_net(1);
    ShardedAdam optimizer(net->named_parameters(), kAdam,
                          {.bucket_bytes = 150, .context = &context});
    train_sharded(net, optimizer, context.rank(), size, 0, 3);
    save_checkpoint(context, file, net, optimizer);
    train_sharded(net, optimizer, context.rank(), size, 3, 5);
    const auto wanted = values_of(net);

    auto other = make_net(9);
    ShardedAdam resumed(other->named_parameters(), kAdam, {.context = &context});
    load_checkpoint(context, file, other, resumed);
    train_sharded(other, resumed, context.rank(), size, 3, 5);
    EXPECT_LT(largest_difference(values_of(other), wanted), 1e-6);
    EXPECT_TRUE(verify(*other, context));

    // If rank 0 cannot write, no rank waits.
    EXPECT_EQ(code_of([&] { save_checkpoint(context, file / "below", net, optimizer); }),
              Errc::resource);
    EXPECT_TRUE(verify(*other, context));
  });
  fs::remove_all(folder);
}

}  // namespace
}  // namespace hvd::sharded_state_test
