// Tests that checkpoints are written completely or not at all, and loaded by all ranks or by none.
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>

#include "training.hpp"

namespace hvd {
namespace {

using namespace test;  // NOLINT: a test
using testing::HasSubstr;
namespace fs = std::filesystem;

/// A temporary folder, which is removed with the object.
class Folder {
 public:
  Folder() {
    std::string pattern = (fs::temp_directory_path() / "hvd-checkpoint-XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  ~Folder() { fs::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  [[nodiscard]] fs::path file() const { return path_ / "model.pt"; }
  [[nodiscard]] std::size_t files() const {
    return static_cast<std::size_t>(
        std::distance(fs::directory_iterator(path_), fs::directory_iterator()));
  }

 private:
  fs::path path_;
};

std::string content_of(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void write(const fs::path& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
}

class Checkpoint : public testing::TestWithParam<int> {
 protected:
  Folder folder_;
};
INSTANTIATE_TEST_SUITE_P(Ranks, Checkpoint, testing::Values(1, 2, 3, 4));

void step(torch::nn::Sequential& net, torch::optim::Optimizer& optimizer, int number) {
  optimizer.zero_grad();
  loss_of(net, global_batch(number)).backward();
  optimizer.step();
}

TEST_P(Checkpoint, OfModelOptimizerAndSamplerGoesOnWhereItWasSaved) {
  const fs::path file = folder_.file();
  on_ranks(GetParam(), [&](Context& context) {
    const auto options = torch::optim::AdamOptions(0.05);
    const DistributedSamplerOptions shard{.rank = context.rank(), .size = context.size()};
    torch::nn::Sequential net = make_net(7);
    torch::optim::Adam optimizer(net->parameters(), options);
    DistributedSampler sampler(60, shard);
    for (int number = 0; number < 3; ++number) step(net, optimizer, number);
    (void)sampler.next(5);
    {
      DistributedOptimizer wrapper(optimizer, net,
                                   DistributedOptimizerOptions{.context = &context});
      save_checkpoint(context, file, net, wrapper, sampler);
    }
    const auto at_save = values_of(net);
    step(net, optimizer, 3);  // with state that Adam kept
    const auto wanted = values_of(net);

    torch::nn::Sequential other = make_net(static_cast<std::uint64_t>(100 + context.rank()));
    torch::optim::Adam fresh(other->parameters(), options);
    DistributedSampler resumed(60, shard);
    EXPECT_GT(largest_difference(values_of(other), at_save), 0.1);
    {
      DistributedOptimizer wrapper(fresh, other, DistributedOptimizerOptions{.context = &context});
      load_checkpoint(context, file, other, wrapper, resumed);
    }
    EXPECT_EQ(largest_difference(values_of(other), at_save), 0);
    EXPECT_EQ(resumed.position(), 5u);
    step(other, fresh, 3);
    EXPECT_EQ(largest_difference(values_of(other), wanted), 0);
    EXPECT_TRUE(verify(other, context));
  });
  EXPECT_EQ(folder_.files(), 1u);
}

TEST_P(Checkpoint, IsAnArchiveThatTorchReads) {
  const fs::path file = folder_.file();
  on_ranks(GetParam(), [&](Context& context) {
    save_checkpoint(context, file, torch::arange(5.0));
    torch::serialize::InputArchive archive;
    archive.load_from(file.string());
    torch::serialize::InputArchive first;
    archive.read("0", first);
    torch::Tensor tensor;
    torch::operator>>(first, tensor);
    EXPECT_TRUE(torch::equal(tensor, torch::arange(5.0)));
  });
}

TEST_P(Checkpoint, ThatIsMissingIsANamedErrorOnEveryRank) {
  on_ranks(GetParam(), [&](Context& context) {
    torch::Tensor tensor = torch::ones({2});
    std::string message;
    const fs::path missing = folder_.file().parent_path() / "missing.pt";
    EXPECT_EQ(code_of([&] { load_checkpoint(context, missing, tensor); }, &message),
              Errc::resource);
    EXPECT_THAT(message, HasSubstr("missing.pt: No such file"));
    EXPECT_EQ(code_of([&] { load_checkpoint(context, missing.parent_path(), tensor); }),
              Errc::resource);
    EXPECT_EQ(code_of([&] { save_checkpoint(context, missing / "below" / "a file", tensor); }),
              Errc::resource);
    EXPECT_TRUE(torch::equal(allreduce(tensor, {.context = &context}), tensor));
  });
}

TEST_P(Checkpoint, ThatIsDamagedIsANamedErrorOnEveryRank) {
  const fs::path file = folder_.file();
  on_ranks(GetParam(), [&](Context& context) {
    torch::Tensor tensor = torch::arange(100.0);
    save_checkpoint(context, file, tensor);
    const std::string good = context.rank() == 0 ? content_of(file) : "";
    const auto expect_refused = [&](const std::string& damaged, const std::string& why) {
      if (context.rank() == 0) write(file, damaged);
      std::string message;
      EXPECT_EQ(code_of([&] { load_checkpoint(context, file, tensor); }, &message), Errc::protocol)
          << why;
      EXPECT_THAT(message, HasSubstr("is damaged"));
      EXPECT_THAT(message, HasSubstr("model.pt"));
    };
    for (int part = 0; part < 8; ++part) {
      std::string flipped = good;
      if (!good.empty()) {
        flipped[good.size() / 8 * static_cast<std::size_t>(part)] ^= 1;
      }
      expect_refused(flipped, std::string("a bit in part ").append(std::to_string(part)));
    }
    expect_refused(good.substr(0, good.size() / 2), "truncated");
    expect_refused(good.substr(0, good.size() - std::min<std::size_t>(good.size(), 1)), "one less");
    expect_refused(good + "x", "one more");
    expect_refused("", "empty");
    if (context.rank() == 0) write(file, good);
    load_checkpoint(context, file, tensor);
    EXPECT_TRUE(torch::equal(tensor, torch::arange(100.0)));
  });
}

TEST_P(Checkpoint, ThatCannotBeSavedLeavesTheOldOne) {
  const fs::path file = folder_.file();
  on_ranks(GetParam(), [&](Context& context) {
    save_checkpoint(context, file, torch::ones({2}));
    std::string message;
    const auto call = [&] {
      save_checkpoint_archive(
          file,
          [](torch::serialize::OutputArchive&) {
            throw std::runtime_error("the disk of the mind is full");
          },
          nullptr, context);
    };
    EXPECT_EQ(code_of(call, &message), Errc::invalid_argument);
    EXPECT_THAT(message, HasSubstr("the mind"));
    torch::Tensor tensor = torch::zeros({2});
    load_checkpoint(context, file, tensor);
    EXPECT_TRUE(torch::equal(tensor, torch::ones({2})));
  });
  EXPECT_EQ(folder_.files(), 1u);
}

TEST_P(Checkpoint, ThatOneRankCannotLoadIsAnErrorOnAll) {
  const int size = GetParam();
  on_ranks(size, [&](Context& context) {
    save_checkpoint(context, folder_.file(), torch::ones({2}));
    std::string message;
    const bool odd = context.rank() == size - 1;
    const auto call = [&] {
      load_checkpoint_archive(
          folder_.file(),
          [&](torch::serialize::InputArchive&) {
            if (odd) throw Error(Errc::unsupported, "no room for it");
          },
          context);
    };
    EXPECT_EQ(code_of(call, &message), odd ? Errc::unsupported : Errc::mismatch);
    EXPECT_THAT(message, HasSubstr("no room for it"));
    if (!odd) {
      EXPECT_THAT(message, HasSubstr(std::string("rank ").append(std::to_string(size - 1))));
    }
  });
}

/// Expects that `load_checkpoint` fails because the checkpoint does not fit, and leaves the module
/// unchanged.
template <class Module, class... Others>
void expect_misfit(Context& context, const fs::path& file, const std::string& why, Module& module,
                   Others&... others) {
  std::vector<torch::Tensor> before;
  for (const torch::Tensor& tensor : NamedTensors::of(*module).tensors()) {
    before.push_back(tensor.detach().clone());
  }
  std::string message;
  EXPECT_EQ(code_of([&] { load_checkpoint(context, file, module, others...); }, &message),
            Errc::invalid_argument);
  EXPECT_THAT(message, HasSubstr(file.string()));
  EXPECT_THAT(message, HasSubstr(why));
  EXPECT_THAT(message, testing::Not(HasSubstr("INTERNAL ASSERT")));
  const std::vector<torch::Tensor> after = NamedTensors::of(*module).tensors();
  for (std::size_t i = 0; i < before.size(); ++i) {
    EXPECT_TRUE(equal_bits(after[i].detach(), before[i])) << "tensor " << i;
  }
  EXPECT_TRUE(torch::equal(allreduce(torch::ones({2}), {.context = &context}), torch::ones({2})));
}

TEST_P(Checkpoint, OfSomethingElseIsNamedAndChangesNoModel) {
  const fs::path file = folder_.file();
  on_ranks(GetParam(), [&](Context& context) {
    save_checkpoint(context, file, torch::nn::Linear(2, 2));
    torch::nn::BatchNorm1d norm(2);
    expect_misfit(context, file, "part 0 does not fit what it is loaded into", norm);
    torch::nn::Linear wider(2, 3);
    expect_misfit(context, file, "weight is [2, 2] Float, not [3, 2] Float", wider);
    torch::nn::Linear precise(2, 2);
    precise->to(torch::kFloat64);
    expect_misfit(context, file, "weight is [2, 2] Float, not [2, 2] Double", precise);
    torch::nn::Linear half(2, 2);
    half->to(torch::kFloat16);
    expect_misfit(context, file, "weight is [2, 2] Float, not [2, 2] Half", half);
    torch::nn::Linear linear(2, 2);
    torch::Tensor more;
    expect_misfit(context, file,
                  "part 1 does not fit what it is loaded into: there is no such part", linear,
                  more);

    auto net = make_net(1);
    torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
    step(net, sgd, 0);
    save_checkpoint(context, file, net, sgd);
    torch::nn::Sequential smaller(torch::nn::Linear(kFeatures, 8), torch::nn::Tanh(),
                                  torch::nn::Linear(8, kClasses - 1));
    expect_misfit(context, file, "2.weight is [3, 8] Float, not [2, 8] Float", smaller);
    auto other = make_net(2);
    torch::optim::Adam adam(other->parameters());
    expect_misfit(context, file,
                  "part 1 does not fit what it is loaded into: it is of another kind", other, adam);
    torch::optim::SGD fewer({other->parameters()[0]}, torch::optim::SGDOptions(0.1));
    expect_misfit(context, file, "part 1 does not fit", other, fewer);
  });
}

/// An object that can be told to fail while it is loaded.
struct Moody {
  bool refuses = false;
};
[[maybe_unused]] torch::serialize::OutputArchive& operator<<(
    torch::serialize::OutputArchive& archive, const Moody& /*value*/) {
  return archive;
}
[[maybe_unused]] torch::serialize::InputArchive& operator>>(torch::serialize::InputArchive& archive,
                                                            Moody& value) {
  if (value.refuses) throw std::runtime_error("not today");
  return archive;
}

TEST_P(Checkpoint, ThatOneRankCannotLoadLeavesEveryModelAsItWas) {
  const fs::path file = folder_.file();
  const int size = GetParam();
  on_ranks(size, [&](Context& context) {
    auto saved = make_net(1);
    save_checkpoint(context, file, saved, Moody());
    auto net = make_net(2);
    const auto before = values_of(net);
    Moody moody{context.rank() == size - 1};
    std::string message;
    EXPECT_EQ(code_of([&] { load_checkpoint(context, file, net, moody); }, &message),
              moody.refuses ? Errc::invalid_argument : Errc::mismatch);
    EXPECT_THAT(message, HasSubstr("model.pt"));
    EXPECT_THAT(message, HasSubstr("part 1"));
    EXPECT_THAT(message, HasSubstr("not today"));
    EXPECT_EQ(largest_difference(values_of(net), before), 0);
    moody.refuses = false;
    load_checkpoint(context, file, net, moody);
    EXPECT_EQ(largest_difference(values_of(net), values_of(saved)), 0);
  });
}

// A file of `torch::save` has no digest. It is refused, whole or cut at any place.
TEST_P(Checkpoint, ThatIsAPlainArchiveIsATypedErrorHoweverItIsCut) {
  const fs::path file = folder_.file();
  on_ranks(GetParam(), [&](Context& context) {
    auto net = make_net(1);
    const auto before = values_of(net);
    std::string whole;
    if (context.rank() == 0) {
      torch::save(net, file.string());
      whole = content_of(file);
    }
    for (const double share : {1.0, 0.99, 0.6, 0.1, 0.01}) {
      if (context.rank() == 0) {
        write(file, whole.substr(0, static_cast<std::size_t>(share * double(whole.size()))));
      }
      std::string message;
      EXPECT_EQ(code_of([&] { load_checkpoint(context, file, net); }, &message), Errc::protocol);
      EXPECT_THAT(message, HasSubstr("model.pt is damaged: it has no end mark"));
    }
    EXPECT_EQ(largest_difference(values_of(net), before), 0);
  });
}

}  // namespace
}  // namespace hvd
