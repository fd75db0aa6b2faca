// Which examples a rank gets, also through LibTorch's data loader.
#include <set>

#include "contexts.hpp"

namespace hvd {
namespace {

using Indices = std::vector<std::size_t>;

DistributedSampler sampler_of(std::size_t dataset, int rank, int size,
                              DistributedSamplerOptions options = {}) {
  options.rank = rank;
  options.size = size;
  return DistributedSampler(dataset, options);
}

Indices drain(DistributedSampler& sampler, std::size_t batch) {
  Indices all;
  while (const auto indices = sampler.next(batch)) {
    EXPECT_LE(indices->size(), batch);
    all.insert(all.end(), indices->begin(), indices->end());
  }
  return all;
}

/// As a batch, the indices themselves.
class IndexDataset : public torch::data::datasets::BatchDataset<IndexDataset, Indices> {
 public:
  explicit IndexDataset(std::size_t size) : size_(size) {}
  Indices get_batch(torch::ArrayRef<std::size_t> request) override { return request.vec(); }
  torch::optional<std::size_t> size() const override { return size_; }

 private:
  std::size_t size_;
};

class Sampler : public testing::TestWithParam<std::tuple<int, std::size_t, bool>> {};
INSTANTIATE_TEST_SUITE_P(Shards, Sampler,
                         testing::Combine(testing::Values(1, 2, 3, 4, 5, 8),
                                          testing::Values(0, 1, 3, 7, 16, 101), testing::Bool()));

TEST_P(Sampler, ShardsAreEqualDisjointAndTogetherEverything) {
  const auto [size, dataset, drop] = GetParam();
  Indices all;
  for (int rank = 0; rank < size; ++rank) {
    DistributedSampler sampler = sampler_of(dataset, rank, size, {.drop_last = drop});
    const Indices mine = drain(sampler, 4);
    EXPECT_EQ(mine.size(), sampler.size());
    EXPECT_EQ(mine.size(), drop ? dataset / static_cast<std::size_t>(size)
                                : (dataset + static_cast<std::size_t>(size) - 1) /
                                      static_cast<std::size_t>(size));
    all.insert(all.end(), mine.begin(), mine.end());
  }
  const std::set<std::size_t> distinct(all.begin(), all.end());
  EXPECT_EQ(distinct.size(), drop ? all.size() : dataset);
  if (!distinct.empty()) {
    EXPECT_LT(*distinct.rbegin(), dataset);
  }
}

TEST(Sampler, BatchesOfTheRanksTogetherAreTheBatchOfOne) {
  constexpr std::size_t kDataset = 96;
  for (const int size : {2, 3, 4}) {
    DistributedSampler alone = sampler_of(kDataset, 0, 1, {.seed = 5});
    std::vector<DistributedSampler> ranks;
    for (int rank = 0; rank < size; ++rank) {
      ranks.push_back(sampler_of(kDataset, rank, size, {.seed = 5}));
    }
    for (int batch = 0; batch < 4; ++batch) {
      std::multiset<std::size_t> together;
      for (auto& rank : ranks) {
        const auto part = *rank.next(24 / static_cast<std::size_t>(size));
        together.insert(part.begin(), part.end());
      }
      const auto whole = *alone.next(24);
      EXPECT_EQ(together, std::multiset<std::size_t>(whole.begin(), whole.end()));
    }
  }
}

TEST(Sampler, OrderDependsOnSeedAndEpochOnly) {
  const auto order = [](std::uint64_t seed, std::size_t epoch, bool shuffle = true) {
    DistributedSampler sampler = sampler_of(50, 0, 2, {.shuffle = shuffle, .seed = seed});
    sampler.set_epoch(epoch);
    sampler.reset();
    return drain(sampler, 7);
  };
  EXPECT_EQ(order(1, 0), order(1, 0));
  EXPECT_NE(order(1, 0), order(1, 1));
  EXPECT_NE(order(1, 0), order(2, 0));
  EXPECT_EQ(order(1, 0, false), order(2, 3, false));
  EXPECT_EQ(order(1, 0, false)[1], 2u);
  // Fixed by the C++ standard's engine, so the same on every machine.
  DistributedSampler few = sampler_of(6, 0, 1, {.seed = 42});
  EXPECT_EQ(drain(few, 6).size(), 6u);
}

TEST(Sampler, SetEpochOnTheOriginalReachesTheLoadersCopy) {
  DistributedSampler sampler = sampler_of(40, 1, 2);
  auto loader = torch::data::make_data_loader(IndexDataset(40), sampler,
                                              torch::data::DataLoaderOptions().batch_size(6));
  const auto epoch = [&](std::size_t number) {
    sampler.set_epoch(number);
    Indices all;
    for (const Indices& batch : *loader) all.insert(all.end(), batch.begin(), batch.end());
    return all;
  };
  const Indices first = epoch(0);
  const Indices second = epoch(1);
  EXPECT_EQ(first.size(), 20u);
  EXPECT_NE(first, second);
  EXPECT_EQ(epoch(0), first);
}

TEST(Sampler, GoesOnWhereItWasSaved) {
  DistributedSampler sampler = sampler_of(60, 1, 2, {.seed = 3});
  sampler.set_epoch(4);
  sampler.reset();
  (void)*sampler.next(8);
  torch::serialize::OutputArchive out;
  sampler.save(out);
  std::stringstream bytes;
  out.save_to(bytes);
  const Indices rest = drain(sampler, 8);

  torch::serialize::InputArchive in;
  in.load_from(bytes);
  DistributedSampler resumed = sampler_of(60, 1, 2, {.seed = 3});
  resumed.load(in);
  EXPECT_EQ(resumed.epoch(), 4u);
  resumed.reset();  // as a loader begins
  EXPECT_EQ(resumed.position(), 8u);
  EXPECT_EQ(drain(resumed, 8), rest);
  resumed.reset();
  EXPECT_EQ(resumed.position(), 0u);

  DistributedSampler other = sampler_of(61, 1, 2, {.seed = 3});
  EXPECT_EQ(test::code_of([&] { other.load(in); }), Errc::invalid_argument);
}

TEST(Sampler, TakesRankAndSizeFromTheDefaultContext) {
  EXPECT_EQ(test::code_of([] { DistributedSampler sampler(5); }), Errc::not_initialized);
  EXPECT_EQ(test::code_of([] { (void)sampler_of(5, 2, 2); }), Errc::invalid_argument);
  init(Config{});
  EXPECT_EQ(DistributedSampler(5).size(), 5u);
  shutdown();
}

}  // namespace
}  // namespace hvd
