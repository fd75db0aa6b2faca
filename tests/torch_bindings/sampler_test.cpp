// Tests which examples a rank gets, also through LibTorch's data loader.
#include <cmath>
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

/// Loads into `resumed` what `sampler` saves.
template <class AnySampler>
void resume(const AnySampler& sampler, AnySampler& resumed) {
  torch::serialize::OutputArchive out;
  sampler.save(out);
  std::stringstream bytes;
  out.save_to(bytes);
  torch::serialize::InputArchive in;
  in.load_from(bytes);
  resumed.load(in);
}

/// A data set whose batches are the indices themselves.
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
  // The C++ standard defines this engine, so the order is the same on every machine.
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

TEST(Sampler, EachPassOfALoaderIsTheNextEpoch) {
  DistributedSampler sampler = sampler_of(40, 1, 2);
  const Indices order_of_epoch_0 = sampler.indices();
  auto loader = torch::data::make_data_loader(IndexDataset(40), sampler,
                                              torch::data::DataLoaderOptions().batch_size(6));
  const auto pass = [&] {
    Indices all;
    for (const Indices& batch : *loader) all.insert(all.end(), batch.begin(), batch.end());
    return all;
  };
  EXPECT_EQ(pass(), order_of_epoch_0);
  const Indices second = pass();
  EXPECT_NE(second, order_of_epoch_0);
  EXPECT_EQ(sampler.epoch(), 1u);
  for (const Indices& batch : *loader) {  // a pass that the program leaves early is an epoch too
    EXPECT_EQ(batch.size(), 6u);
    break;
  }
  EXPECT_EQ(sampler.epoch(), 2u);
  sampler.set_epoch(0);
  EXPECT_EQ(pass(), order_of_epoch_0);
  EXPECT_EQ(pass(), second);
}

TEST(Sampler, ResetBeginsTheNextEpochAfterNextToo) {
  DistributedSampler sampler = sampler_of(40, 0, 2);
  const Indices first = drain(sampler, 6);  // without reset(), as after LibTorch's RandomSampler()
  sampler.reset();
  EXPECT_EQ(sampler.epoch(), 1u);
  EXPECT_NE(drain(sampler, 6), first);
  sampler.set_epoch(5);  // in the middle of a pass
  (void)sampler.next(6);
  sampler.reset();
  EXPECT_EQ(sampler.epoch(), 5u);
  sampler.reset();
  EXPECT_EQ(sampler.epoch(), 6u);
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
  EXPECT_EQ(resumed.epoch(), 5u);
  EXPECT_EQ(resumed.position(), 0u);
  resumed.load(in);
  resumed.set_epoch(7);  // the saved position is one of epoch 4
  resumed.reset();
  EXPECT_EQ(resumed.epoch(), 7u);
  EXPECT_EQ(resumed.position(), 0u);

  DistributedSampler other = sampler_of(61, 1, 2, {.seed = 3});
  EXPECT_EQ(test::code_of([&] { other.load(in); }), Errc::invalid_argument);
}

// The saved position lies in another order, and may lie beyond the end of the new one.
TEST(Sampler, BeginsTheSavedEpochAnewWithAnotherSize) {
  DistributedSampler sampler = sampler_of(60, 1, 2, {.seed = 3});
  sampler.set_epoch(4);
  sampler.reset();
  (void)sampler.next(20);
  for (const std::size_t size : {10, 60, 80}) {
    DistributedSampler resumed = sampler_of(60, 1, 2, {.seed = 3});
    resume(sampler, resumed);
    resumed.reset(size);
    EXPECT_EQ(resumed.epoch(), 4u);
    EXPECT_EQ(resumed.position(), size == 60 ? 20u : 0u);
    EXPECT_EQ(drain(resumed, 8).size(), size == 60 ? 10u : size / 2);
    resumed.reset();
    EXPECT_EQ(resumed.epoch(), 5u);
  }
}

TEST(Sampler, AnyNumberOfRanksGoesOnWhereOthersSaved) {
  constexpr std::size_t kDataset = 60;
  for (const auto& [before, after] : {std::pair(2, 3), std::pair(4, 1), std::pair(1, 4)}) {
    std::set<std::size_t> seen;
    std::stringstream bytes;
    for (int rank = 0; rank < before; ++rank) {
      DistributedSampler sampler = sampler_of(kDataset, rank, before, {.seed = 3});
      const auto batch = *sampler.next(24 / static_cast<std::size_t>(before));
      seen.insert(batch.begin(), batch.end());
      if (rank > 0) continue;
      torch::serialize::OutputArchive out;
      sampler.save(out);
      out.save_to(bytes);
    }
    ASSERT_EQ(seen.size(), 24U);
    for (int rank = 0; rank < after; ++rank) {
      torch::serialize::InputArchive in;
      bytes.clear();
      bytes.seekg(0);
      in.load_from(bytes);
      DistributedSampler resumed = sampler_of(kDataset, rank, after, {.seed = 3});
      resumed.load(in);
      resumed.reset();
      for (const std::size_t index : drain(resumed, 5)) {
        EXPECT_TRUE(seen.insert(index).second) << index << " was seen before";
      }
    }
    EXPECT_EQ(seen.size(), kDataset) << before << " ranks, then " << after;
  }
}

// A trainer may save when its loop over the batches of an epoch has ended.
TEST(Sampler, BeginsTheNextEpochWhenNothingWasLeftOfTheSavedOne) {
  constexpr std::size_t kDataset = 61;
  for (const bool drop : {false, true}) {
    DistributedSampler sampler = sampler_of(kDataset, 1, 2, {.seed = 3, .drop_last = drop});
    sampler.set_epoch(4);
    sampler.reset();
    (void)drain(sampler, 8);
    for (const int ranks : {2, 3, 7}) {
      const auto begun = [&](std::size_t epoch) {
        DistributedSampler fresh = sampler_of(kDataset, 1, ranks, {.seed = 3, .drop_last = drop});
        fresh.set_epoch(epoch);
        fresh.reset();
        return fresh.indices();
      };
      DistributedSampler resumed = sampler_of(kDataset, 1, ranks, {.seed = 3, .drop_last = drop});
      resume(sampler, resumed);
      EXPECT_EQ(resumed.epoch(), 5u);
      EXPECT_EQ(resumed.position(), 0u);
      resumed.reset();  // as a loader begins
      EXPECT_EQ(resumed.epoch(), 5u);
      EXPECT_EQ(drain(resumed, 8), begun(5)) << ranks << " ranks";
      resumed.reset();
      EXPECT_EQ(resumed.epoch(), 6u);
      for (const std::size_t epoch : {4, 5, 7}) {  // 4 is repeated
        resume(sampler, resumed);
        resumed.set_epoch(epoch);
        resumed.reset();
        EXPECT_EQ(resumed.epoch(), epoch);
        EXPECT_EQ(drain(resumed, 8), begun(epoch)) << ranks << " ranks";
      }
    }
  }
}

TEST(Sampler, AfterSetEpochTheSavedEpochHasNotBegun) {
  for (const std::size_t used : {5, 10}) {  // a part of the epoch before, and all of it
    DistributedSampler sampler = sampler_of(20, 0, 2, {});
    sampler.reset();
    (void)sampler.next(used);
    sampler.set_epoch(1);
    DistributedSampler resumed = sampler_of(20, 0, 2, {});
    resume(sampler, resumed);
    resumed.reset();
    EXPECT_EQ(resumed.epoch(), 1u);
    EXPECT_EQ(drain(resumed, 8), resumed.indices());
  }
}

ElasticSampler elastic_of(std::size_t dataset, int rank, int size,
                          ElasticSamplerOptions options = {}) {
  options.rank = rank;
  options.size = size;
  return ElasticSampler(dataset, options);
}

class Elastic : public testing::TestWithParam<std::tuple<int, std::size_t>> {};
INSTANTIATE_TEST_SUITE_P(Shards, Elastic,
                         testing::Combine(testing::Values(1, 2, 3, 5),
                                          testing::Values(0, 1, 7, 16, 101)));

TEST_P(Elastic, DealsWhatIsNotRecordedToAnyNumberOfRanks) {
  const auto [size, dataset] = GetParam();
  const auto before = static_cast<std::size_t>(size);
  // Each rank trains on two batches of 2 and records one.
  std::set<std::size_t> recorded;
  for (int rank = 0; rank < size; ++rank) {
    ElasticSampler sampler = elastic_of(dataset, rank, size, {.seed = 9});
    EXPECT_EQ(sampler.size(), (dataset + before - 1) / before);
    const auto first = sampler.next(2);
    (void)sampler.next(2);
    sampler.record_batch(2);
    if (first) recorded.insert(first->begin(), first->end());
    const Indices known = sampler.recorded();
    EXPECT_EQ(
        std::set<std::size_t>(known.begin(), known.end()),
        first ? std::set<std::size_t>(first->begin(), first->end()) : std::set<std::size_t>());
    EXPECT_EQ(sampler.indices().size(), sampler.size());
  }
  // One more rank shares the remaining examples.
  const torch::Tensor saved =
      torch::tensor(std::vector<std::int64_t>(recorded.begin(), recorded.end()), torch::kInt64);
  std::multiset<std::size_t> rest;
  for (int rank = 0; rank <= size; ++rank) {
    ElasticSampler sampler = elastic_of(dataset, rank, size + 1, {.seed = 9});
    torch::serialize::OutputArchive out;
    out.write("dataset_size", static_cast<std::int64_t>(dataset));
    out.write("seed", std::int64_t{9});
    out.write("epoch", std::int64_t{0});
    out.write("recorded", saved, true);
    std::stringstream bytes;
    out.save_to(bytes);
    torch::serialize::InputArchive in;
    in.load_from(bytes);
    sampler.load(in);
    while (const auto batch = sampler.next(3)) rest.insert(batch->begin(), batch->end());
  }
  const std::set<std::size_t> distinct(rest.begin(), rest.end());
  EXPECT_EQ(distinct.size(), dataset - recorded.size());
  EXPECT_LE(rest.size(), distinct.size() + before);
  for (const std::size_t index : distinct) EXPECT_EQ(recorded.count(index), 0u);
}

TEST(Elastic, RecordsOfAllRanksAreUnitedAndTheRestIsDealtAnew) {
  constexpr std::size_t kDataset = 23;
  for (const int size : {1, 2, 3, 4}) {
    test::on_ranks(size, [&](Context& context) {
      ElasticSampler sampler = elastic_of(kDataset, context.rank(), context.size());
      auto loader = torch::data::make_data_loader(IndexDataset(kDataset), sampler,
                                                  torch::data::DataLoaderOptions().batch_size(2));
      EXPECT_TRUE(verify(sampler, context)) << verify(sampler, context).first_difference;
      std::size_t batches = 0;
      for (const Indices& batch : *loader) {
        sampler.record_batch(batch.size());
        if (++batches == static_cast<std::size_t>(context.rank() % 2) + 1) break;
      }
      const std::size_t mine = sampler.recorded().size();
      const auto all = static_cast<std::size_t>(std::lround(
          average_metric(static_cast<double>(mine), "recorded", context) * context.size()));
      sampler.synchronize(context);
      EXPECT_EQ(sampler.recorded().size(), all);
      sampler.reset();
      EXPECT_EQ(sampler.remaining().size(), kDataset - all);
      EXPECT_TRUE(verify(sampler, context));
      for (const std::size_t index : sampler.indices()) {
        const Indices known = sampler.recorded();
        EXPECT_FALSE(std::binary_search(known.begin(), known.end(), index));
      }
      // A new epoch has all examples again, in another order.
      const Indices first = elastic_of(kDataset, context.rank(), context.size()).indices();
      sampler.set_epoch(1);
      sampler.reset();
      EXPECT_EQ(sampler.remaining().size(), kDataset);
      EXPECT_NE(sampler.indices(), first);

      if (size == 1) return;
      sampler.set_epoch(context.rank() == 1 ? 3 : 2);
      EXPECT_EQ(test::code_of([&] { sampler.synchronize(context); }), Errc::mismatch);
    });
  }
}

TEST(Elastic, EachPassIsTheNextEpochUnlessTheRanksHaveSynchronized) {
  constexpr std::size_t kDataset = 23;
  for (const int size : {1, 3}) {
    test::on_ranks(size, [&](Context& context) {
      ElasticSampler sampler = elastic_of(kDataset, context.rank(), context.size());
      auto loader = torch::data::make_data_loader(IndexDataset(kDataset), sampler,
                                                  torch::data::DataLoaderOptions().batch_size(2));
      const auto pass = [&](std::size_t most) {
        std::size_t batches = 0;
        for (const Indices& batch : *loader) {
          sampler.record_batch(batch.size());
          if (++batches == most) break;
        }
        return sampler.indices();
      };
      const Indices first = pass(100);
      EXPECT_NE(pass(100), first);
      EXPECT_EQ(sampler.epoch(), 1u);
      EXPECT_EQ(sampler.remaining().size(), kDataset);
      EXPECT_TRUE(verify(sampler, context));
      // After this the epoch goes on with what is left, and then the next one begins.
      (void)pass(2);
      EXPECT_EQ(sampler.epoch(), 2u);
      sampler.synchronize(context);
      (void)pass(100);
      EXPECT_EQ(sampler.epoch(), 2u);
      EXPECT_EQ(sampler.remaining().size(), kDataset - 4 * static_cast<std::size_t>(size));
      sampler.synchronize(context);
      EXPECT_EQ(sampler.recorded().size(), kDataset);
      (void)pass(1);
      EXPECT_EQ(sampler.epoch(), 3u);
      EXPECT_EQ(sampler.remaining().size(), kDataset);
    });
  }
}

TEST(Elastic, GoesOnWhereItWasSaved) {
  ElasticSampler sampler = elastic_of(40, 0, 1, {.seed = 3});
  sampler.set_epoch(2);
  sampler.reset();
  (void)sampler.next(10);
  sampler.record_batch(6);
  torch::serialize::OutputArchive out;
  sampler.save(out);
  std::stringstream bytes;
  out.save_to(bytes);
  torch::serialize::InputArchive in;
  in.load_from(bytes);

  ElasticSampler resumed = elastic_of(40, 0, 1, {.seed = 3});
  resumed.load(in);
  EXPECT_EQ(resumed.epoch(), 2u);
  EXPECT_EQ(resumed.recorded(), sampler.recorded());
  EXPECT_EQ(resumed.size(), 34u);
  ElasticSampler other = elastic_of(40, 0, 1, {.seed = 4});
  EXPECT_EQ(test::code_of([&] { other.load(in); }), Errc::invalid_argument);
}

// Only rank 0 writes a checkpoint.
TEST(Elastic, WithAStateEachRankSavesTheRecordOfAll) {
  constexpr std::size_t kDataset = 23;
  constexpr std::size_t kBatch = 3;
  for (const int size : {1, 3}) {
    std::set<std::size_t> used;
    std::vector<Indices> saved;
    for (int rank = 0; rank < size; ++rank) {
      ElasticSampler sampler = elastic_of(kDataset, rank, size, {.seed = 9});
      ElasticState state(sampler);
      sampler.reset();
      for (int step = 0; step < 2; ++step) {
        const Indices batch = *sampler.next(kBatch);
        used.insert(batch.begin(), batch.end());
        sampler.record_batch(batch.size());
      }
      ElasticSampler resumed = elastic_of(kDataset, 0, 1, {.seed = 9});
      resume(sampler, resumed);
      saved.push_back(resumed.recorded());
      sampler.record_batch(kDataset);  // all that are left
      resume(sampler, resumed);
      EXPECT_EQ(resumed.recorded().size(), kDataset);
      sampler.set_epoch(1);
      resume(sampler, resumed);
      EXPECT_EQ(resumed.epoch(), 1u);
      EXPECT_TRUE(resumed.recorded().empty());
    }
    EXPECT_EQ(used.size(), 2 * kBatch * static_cast<std::size_t>(size));
    for (const Indices& each : saved) EXPECT_EQ(each, Indices(used.begin(), used.end()));
  }
}

// Any number of ranks takes in each step what one rank takes.
TEST(Elastic, AGlobalBatchDoesNotDependOnTheRanks) {
  constexpr std::size_t kBatch = 8;
  for (const std::size_t dataset : {0, 5, 8, 50}) {
    ElasticSampler alone = elastic_of(dataset, 0, 1, {.seed = 9, .global_batch = kBatch});
    for (const int size : {2, 3, 5, 9}) {
      alone.set_epoch(4);
      alone.reset();
      std::vector<ElasticSampler> samplers;
      for (int rank = 0; rank < size; ++rank) {
        samplers.push_back(elastic_of(dataset, rank, size, {.seed = 9, .global_batch = kBatch}));
        samplers.back().set_epoch(4);
        samplers.back().reset();
      }
      std::size_t recorded = 0;
      while (const auto expected = alone.next(0)) {
        std::vector<std::size_t> all(expected->size());
        for (int rank = 0; rank < size; ++rank) {
          const auto share = samplers[static_cast<std::size_t>(rank)].next(3);
          ASSERT_TRUE(share);
          for (std::size_t i = 0; i < share->size(); ++i) {
            all.at(i * static_cast<std::size_t>(size) + static_cast<std::size_t>(rank)) =
                (*share)[i];
          }
        }
        EXPECT_EQ(all, *expected);
        recorded += expected->size();
        samplers[0].record_batch(1);
        EXPECT_EQ(samplers[0].recorded().size(), recorded);
      }
      EXPECT_EQ(recorded, dataset);
      EXPECT_FALSE(samplers.back().next(1));
    }
  }
}

TEST(Sampler, VerifyFindsShardsThatOverlapOrMissSomething) {
  for (const int size : {1, 2, 3, 4}) {
    test::on_ranks(size, [&](Context& context) {
      const int rank = context.rank();
      for (const std::size_t dataset : {0, 1, 7, 16, 101}) {
        for (const bool drop : {false, true}) {
          const auto sampler = sampler_of(dataset, rank, size, {.drop_last = drop});
          EXPECT_TRUE(verify(sampler, context)) << verify(sampler, context).first_difference;
        }
      }
      if (size == 1) return;
      const Verification same = verify(sampler_of(20, 0, size), context);
      EXPECT_FALSE(same);
      EXPECT_NE(same.first_difference.find("both get example"), std::string::npos);
      const Verification seeds =
          verify(sampler_of(50, rank, size, {.seed = rank == 0 ? 1u : 2u}), context);
      EXPECT_FALSE(seeds);
      const Verification sizes = verify(sampler_of(rank == 0 ? 20u : 24u, rank, size), context);
      EXPECT_EQ(sizes.first_difference, "rank 1 has a data set of 24, rank 0 of 20");
      const Verification alone = verify(sampler_of(20, 0, 1), context);  // not sharded at all
      EXPECT_FALSE(alone);
    });
  }
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
