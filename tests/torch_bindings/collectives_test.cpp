// Compares collectives on tensors of every dtype and layout with LibTorch on the ranks' stacked
// inputs.
#include <gmock/gmock.h>

#include "contexts.hpp"

namespace hvd {
namespace {

using test::code_of;
using test::on_ranks;
using testing::HasSubstr;

constexpr std::array kDtypes{torch::kUInt8,    torch::kInt8,         torch::kInt16,
                             torch::kInt32,    torch::kInt64,        torch::kFloat16,
                             torch::kBFloat16, torch::kFloat32,      torch::kFloat64,
                             torch::kBool,     torch::kComplexFloat, torch::kComplexDouble};

struct Layout {
  const char* name;
  std::function<torch::Tensor(torch::Tensor)> apply;  ///< of a [4, 6] tensor
};

const std::vector<Layout>& layouts() {
  static const std::vector<Layout> all{
      {"row major", [](torch::Tensor t) { return t; }},
      {"transposed", [](torch::Tensor t) { return t.t(); }},
      {"every other column", [](torch::Tensor t) { return t.slice(1, 0, 6, 2); }},
      {"offset", [](torch::Tensor t) { return t.slice(0, 1, 3); }},
      {"empty", [](torch::Tensor t) { return t.slice(1, 3, 3); }},
      {"scalar", [](torch::Tensor t) { return t[1][2]; }},
      {"conjugated when read", [](torch::Tensor t) { return torch::conj(t); }},
      {"negated when read",
       [](torch::Tensor t) {
         return torch::isIntegralType(t.scalar_type(), true) ? t : torch::_neg_view(t);
       }},
  };
  return all;
}

/// Small whole numbers that differ by rank and element. They and their products are exact in every
/// dtype.
torch::Tensor values(int rank, torch::ScalarType dtype) {
  const torch::Tensor numbers = (torch::arange(24).view({4, 6}) + rank) % 3;
  if (torch::isComplexType(dtype)) return (numbers * c10::complex<double>(1, -2)).to(dtype);
  return dtype == torch::kBool ? (numbers == 0) : numbers.to(dtype);
}

torch::Tensor stacked(int size, torch::ScalarType dtype, const Layout& layout) {
  std::vector<torch::Tensor> inputs;
  for (int rank = 0; rank < size; ++rank) inputs.push_back(layout.apply(values(rank, dtype)));
  return torch::stack(inputs);
}

torch::Tensor expected(const torch::Tensor& inputs, ReduceOp op) {
  const auto dtype = inputs.scalar_type();
  const torch::Tensor wide =
      inputs.to(torch::isComplexType(dtype) ? torch::kComplexDouble : torch::kFloat64);
  switch (op) {
    case ReduceOp::sum:
      return wide.sum(0).to(dtype);
    case ReduceOp::average:
      return torch::isIntegralType(dtype, false) ? (wide.mean(0) + 1e-9).trunc().to(dtype)
                                                 : wide.mean(0).to(dtype);
    case ReduceOp::min:
      return std::get<0>(wide.min(0)).to(dtype);
    case ReduceOp::max:
      return std::get<0>(wide.max(0)).to(dtype);
    default:
      return wide.prod(0).to(dtype);
  }
}

void expect_near(const torch::Tensor& actual, const torch::Tensor& wanted,
                 const std::string& what) {
  EXPECT_EQ(actual.scalar_type(), wanted.scalar_type()) << what;
  ASSERT_EQ(actual.sizes(), wanted.sizes()) << what;
  const double relative = wanted.scalar_type() == torch::kBFloat16  ? 1e-2
                          : wanted.scalar_type() == torch::kFloat16 ? 2e-3
                                                                    : 1e-6;
  EXPECT_TRUE(torch::allclose(actual.to(torch::kComplexDouble), wanted.to(torch::kComplexDouble),
                              relative, 0))
      << what << "\nis " << actual << "\nnot " << wanted;
}

class Collectives : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Collectives, testing::Values(1, 2, 3, 4));

TEST_P(Collectives, AllreduceOfEveryDtypeOpAndLayout) {
  const int size = GetParam();
  on_ranks(size, [&](Context& context) {
    for (const auto dtype : kDtypes) {
      for (const auto op :
           {ReduceOp::average, ReduceOp::sum, ReduceOp::min, ReduceOp::max, ReduceOp::product}) {
        if (dtype == torch::kBool && op == ReduceOp::average) continue;
        const bool adds = op == ReduceOp::average || op == ReduceOp::sum;
        if (torch::isComplexType(dtype) && !adds) continue;
        std::vector<TensorWork> copies;
        std::vector<TensorWork> in_place;
        std::vector<torch::Tensor> inputs;
        for (const Layout& layout : layouts()) {
          const torch::Tensor input = layout.apply(values(context.rank(), dtype));
          inputs.push_back(layout.apply(values(context.rank(), dtype)));
          copies.push_back(allreduce_async(input, {.op = op, .context = &context}));
          in_place.push_back(allreduce_async_(inputs.back(), {.op = op, .context = &context}));
          EXPECT_TRUE(torch::equal(input, layout.apply(values(context.rank(), dtype))));
        }
        for (std::size_t i = 0; i < copies.size(); ++i) {
          const Layout& layout = layouts()[i];
          const torch::Tensor wanted = expected(stacked(size, dtype, layout), op);
          const auto what = std::string(layout.name) + " " + std::string(to_string(op)) + " " +
                            c10::toString(dtype);
          expect_near(copies[i].wait(), wanted, what);
          EXPECT_TRUE(in_place[i].wait().is_same(inputs[i])) << what;
          expect_near(inputs[i], wanted, what + " in place");
        }
      }
    }
  });
}

TEST_P(Collectives, AverageIsTheDefaultAndScalesApply) {
  const int size = GetParam();
  on_ranks(size, [&](Context& context) {
    const torch::Tensor mine = torch::full({5}, context.rank() + 1.0);
    const double mean = (size + 1) / 2.0;
    expect_near(allreduce(mine, {.context = &context}), torch::full({5}, mean), "average");
    expect_near(
        allreduce(mine,
                  {.op = ReduceOp::sum, .prescale = 0.5, .postscale = 4, .context = &context}),
        torch::full({5}, 2 * mean * size), "scaled");
  });
}

TEST_P(Collectives, ResultsOfAllRanksAreTheSameBits) {
  const int size = GetParam();
  std::vector<torch::Tensor> results(static_cast<std::size_t>(size));
  on_ranks(size, [&](Context& context) {
    const auto seed = static_cast<std::uint64_t>(context.rank());
    results[seed] = allreduce(test::normal({1013}, seed), {.context = &context});
  });
  for (const torch::Tensor& result : results) EXPECT_TRUE(test::equal_bits(result, results[0]));
}

TEST_P(Collectives, AllgatherOfDifferentRowsAlsoNone) {
  const int size = GetParam();
  on_ranks(size, [&](Context& context) {
    for (const auto dtype : kDtypes) {
      // Rank r contributes r rows, which are columns of another tensor.
      const auto of = [&](int rank) { return values(rank, dtype).slice(1, 0, rank).t(); };
      std::vector<torch::Tensor> all;
      for (int rank = 0; rank < size; ++rank) all.push_back(of(rank));
      const TensorWork gathered = allgather_async(of(context.rank()), {.context = &context});
      const TensorWork scalars =
          allgather_async(values(context.rank(), dtype)[0][0], {.context = &context});
      EXPECT_TRUE(torch::equal(gathered.wait(), torch::cat(all)));
      EXPECT_EQ(scalars.wait().sizes(), torch::IntArrayRef({size}));
    }
  });
}

TEST_P(Collectives, BroadcastFromEveryRoot) {
  const int size = GetParam();
  on_ranks(size, [&](Context& context) {
    for (int root = 0; root < size; ++root) {
      for (const auto dtype : kDtypes) {
        for (const Layout& layout : layouts()) {
          const torch::Tensor mine = layout.apply(values(context.rank(), dtype));
          const torch::Tensor wanted = layout.apply(values(root, dtype));
          const TensorWork copy = broadcast_async(mine, root, {.context = &context});
          EXPECT_TRUE(torch::equal(copy.wait(), wanted)) << layout.name;
          EXPECT_TRUE(torch::equal(mine, layout.apply(values(context.rank(), dtype))));
          EXPECT_TRUE(broadcast_(mine, root, {.context = &context}).is_same(mine));
          EXPECT_TRUE(torch::equal(mine, wanted)) << layout.name;
        }
      }
    }
  });
}

TEST_P(Collectives, NamedOnesMatchInAnyOrder) {
  const int size = GetParam();
  on_ranks(size, [&](Context& context) {
    const torch::Tensor one = torch::ones({3});
    std::vector<std::string> names{"a", "b", "c", "d"};
    if (context.rank() % 2 == 1) std::reverse(names.begin(), names.end());
    std::vector<TensorWork> works;
    for (const auto& name : names) {
      works.push_back(allreduce_async(one * (name[0] - 'a'),
                                      {.name = name, .op = ReduceOp::sum, .context = &context}));
    }
    for (std::size_t i = 0; i < names.size(); ++i) {
      expect_near(works[i].wait(), one * (names[i][0] - 'a') * size, names[i]);
    }
  });
}

TEST_P(Collectives, AutogradSeesNothingButTheOverwriting) {
  on_ranks(GetParam(), [&](Context& context) {
    const torch::Tensor leaf = torch::ones({2, 2}, torch::requires_grad());
    EXPECT_FALSE(allreduce_async(leaf, {.context = &context}).wait().requires_grad());
    const auto version = leaf._version();
    broadcast_(leaf, 0, {.context = &context});
    EXPECT_TRUE(leaf.requires_grad());
    EXPECT_TRUE(leaf.is_leaf());
    EXPECT_GT(leaf._version(), version);

    // Overwriting a saved tensor must make backward() fail instead of giving wrong gradients.
    const torch::Tensor product = leaf * leaf;
    allreduce_(leaf, {.context = &context});
    EXPECT_THROW(product.sum().backward(), c10::Error);
  });
}

TEST_P(Collectives, GradientsOfGradients) {
  const int size = GetParam();
  on_ranks(size, [&](Context& context) {
    // The loss of all ranks is size · Σ (Σ over ranks of x³). Its gradient is size · 3 x². The
    // gradient of the sum of all ranks' gradients with respect to x is size · 6 x.
    const torch::Tensor x = torch::full({2}, context.rank() + 1.0).requires_grad_();
    const torch::Tensor loss =
        allreduce(x.pow(3), {.op = ReduceOp::sum, .context = &context}).sum();
    const torch::Tensor first =
        torch::autograd::grad({loss}, {x}, {}, /*retain_graph=*/true, /*create_graph=*/true)[0];
    expect_near(first.detach(), size * 3 * x.detach().square(), "first");
    EXPECT_TRUE(first.requires_grad());
    expect_near(torch::autograd::grad({first.sum()}, {x})[0], size * 6 * x.detach(), "second");
  });
}

TEST_P(Collectives, GradientsOfABroadcastAreZeroOffTheRootAlsoForNan) {
  on_ranks(GetParam(), [](Context& context) {
    const torch::Tensor x = torch::ones({3}, torch::requires_grad());
    const torch::Tensor y = broadcast(x, 0, {.context = &context});
    (y * std::numeric_limits<double>::quiet_NaN()).sum().backward();
    if (context.rank() == 0) {
      EXPECT_TRUE(x.grad().isnan().all().item<bool>());
    } else {
      expect_near(x.grad(), torch::zeros({3}), "off the root");
    }
  });
}

TEST_P(Collectives, GroupsOfWhatNeedsAGradientAndWhatDoesNot) {
  const int size = GetParam();
  on_ranks(size, [&](Context& context) {
    const torch::Tensor x = torch::ones({3}, torch::requires_grad());
    const torch::Tensor index = torch::arange(4);
    const torch::Tensor plain = torch::ones({2});
    const Tensors results =
        grouped_allreduce({index, x, plain}, {.op = ReduceOp::sum, .context = &context});
    EXPECT_FALSE(results[0].requires_grad());
    results[1].sum().backward();  // the other results have no gradient: zeros travel
    expect_near(x.grad(), torch::full({3}, static_cast<float>(size)), "gradient");
    EXPECT_FALSE(plain.grad().defined());

    const torch::NoGradGuard no_grad;
    EXPECT_FALSE(allreduce(x, {.context = &context}).requires_grad());
    EXPECT_FALSE(grouped_allgather({x}, {.context = &context})[0].requires_grad());
  });
}

TEST_P(Collectives, WhatCannotBeReducedIsATypedErrorAndNothingIsSubmitted) {
  on_ranks(GetParam(), [&](Context& context) {
    const auto before = context.stats().submitted;
    const torch::Tensor sparse = torch::eye(3).to_sparse();
    const torch::Tensor half = torch::empty({2}, torch::kComplexHalf);
    const torch::Tensor complex = torch::ones({2}, torch::kComplexFloat);
    const torch::Tensor meta = torch::ones({2}, torch::kMeta);
    std::string message;
    EXPECT_EQ(code_of([&] { (void)allreduce(sparse, {.context = &context}); }, &message),
              Errc::unsupported);
    EXPECT_THAT(message, HasSubstr("Sparse"));
    EXPECT_EQ(code_of([&] { (void)broadcast(half, 0, {.context = &context}); }, &message),
              Errc::unsupported);
    EXPECT_THAT(message, HasSubstr("ComplexHalf"));
    for (const ReduceOp op : {ReduceOp::min, ReduceOp::max, ReduceOp::product}) {
      EXPECT_EQ(
          code_of([&] { (void)allreduce(complex, {.op = op, .context = &context}); }, &message),
          Errc::invalid_argument);
      EXPECT_THAT(message, HasSubstr(std::string(to_string(op)) + " is not defined on c64"));
    }
    EXPECT_EQ(code_of([&] { (void)allgather(meta, {.context = &context}); }, &message),
              Errc::unsupported);
    EXPECT_THAT(message, HasSubstr("meta"));
    EXPECT_EQ(code_of([&] { (void)allreduce(torch::Tensor(), {.context = &context}); }),
              Errc::invalid_argument);
    const torch::Tensor overlapping = torch::ones({1}).expand({4});
    EXPECT_EQ(code_of([&] { allreduce_(overlapping, {.context = &context}); }),
              Errc::invalid_argument);
    EXPECT_EQ(context.stats().submitted, before);
    expect_near(allreduce(overlapping, {.context = &context}), torch::ones({4}),
                "expanded, not in place");
  });
}

TEST_P(Collectives, AnotherShapeOnOneRankFailsOnAllAndTheContextStaysUsable) {
  const int size = GetParam();
  if (size == 1) return;
  on_ranks(size, [&](Context& context) {
    const torch::Tensor tensor = context.rank() == 1 ? torch::ones({2, 3}) : torch::ones({3, 2});
    std::string message;
    EXPECT_EQ(code_of([&] { (void)allreduce(tensor, {.name = "weight", .context = &context}); },
                      &message),
              Errc::mismatch);
    EXPECT_THAT(message, HasSubstr("weight"));
    // These have the same memory: three pairs of floats.
    const torch::Tensor pairs =
        context.rank() == 1 ? torch::ones({3}, torch::kComplexFloat) : torch::ones({3, 2});
    EXPECT_EQ(
        code_of([&] { (void)allreduce(pairs, {.name = "weight", .context = &context}); }, &message),
        Errc::mismatch);
    EXPECT_THAT(message, HasSubstr("dtype"));
    expect_near(allreduce(torch::ones({2}), {.name = "weight", .context = &context}),
                torch::ones({2}), "after");
  });
}

TEST_P(Collectives, VerifyFindsTheFirstDifference) {
  const int size = GetParam();
  on_ranks(size, [&](Context& context) {
    const torch::Tensor nan = torch::full({3}, std::numeric_limits<double>::quiet_NaN());
    const torch::Tensor same = torch::arange(13, torch::kUInt8).slice(0, 0, 13, 2);
    const NamedTensors equal{{"nan", nan}, {"same", same}, {"none", torch::empty({0, 3})}};
    EXPECT_TRUE(verify(equal, context).identical);
    EXPECT_EQ(verify(equal, context).first_difference, "");

    if (size == 1) return;
    // Changes the last bit of one element on the last rank.
    torch::Tensor bit = torch::ones({100});
    if (context.rank() == size - 1) bit[99].fill_(std::nextafter(1.0F, 2.0F));
    const Verification differs = verify(NamedTensors{{"same", same}, {"bit", bit}}, context);
    EXPECT_FALSE(differs.identical);
    EXPECT_EQ(differs.first_difference,
              "bit: rank " + std::to_string(size - 1) + " differs from rank 0");

    // Some ranks conjugate when the tensor is read, and the others at once.
    const torch::Tensor z = torch::full({2}, c10::complex<double>(1, 2), torch::kComplexDouble);
    const torch::Tensor conjugate = context.rank() == 0 ? z.conj() : z.conj_physical();
    EXPECT_TRUE(verify(NamedTensors{{"z", conjugate}}, context));
    EXPECT_FALSE(verify(NamedTensors{{"z", context.rank() == 0 ? z : conjugate}}, context));

    const torch::Tensor shape = torch::zeros(context.rank() == 0 ? std::vector<std::int64_t>{2, 3}
                                                                 : std::vector<std::int64_t>{3, 2});
    EXPECT_FALSE(verify(NamedTensors{{"shape", shape}}, context));
    const torch::Tensor dtype = torch::zeros({2}, context.rank() == 0 ? torch::kF32 : torch::kI32);
    EXPECT_FALSE(verify(NamedTensors{{"dtype", dtype}}, context));

    std::vector<NamedTensors::Item> fewer{{"same", same}};
    if (context.rank() == 0) fewer.emplace_back("more", torch::ones({1}));
    const Verification counts = verify(fewer, context);
    EXPECT_THAT(counts.first_difference, HasSubstr("rank 1 has 1 of them, rank 0 has 2"));
  });
}

TEST_P(Collectives, ModulesAreTakenAsReferenceHolderOrPointer) {
  const int size = GetParam();
  on_ranks(size, [&](Context& context) {
    torch::nn::BatchNorm1d holder(4);
    const std::shared_ptr<torch::nn::Module> pointer = holder.ptr();
    const auto differ = [&] {
      const torch::NoGradGuard no_grad;
      holder->weight.fill_(context.rank());
      holder->running_mean.fill_(context.rank());
    };
    for (const auto& [broadcast, compare] :
         std::vector<std::pair<std::function<void()>, std::function<Verification()>>>{
             {[&] { broadcast_parameters(*holder, 0, context); },
              [&] { return verify(*holder, context); }},
             {[&] { broadcast_parameters(holder, 0, context); },
              [&] { return verify(holder, context); }},
             {[&] { broadcast_parameters(pointer, 0, context); },
              [&] { return verify(pointer, context); }}}) {
      differ();
      EXPECT_EQ(compare().identical, size == 1);
      broadcast();
      EXPECT_TRUE(compare());
    }
    if (size == 1) return;
    // A trainer that verifies its model after an epoch finds the running statistics first.
    holder->running_mean.fill_(context.rank());
    EXPECT_THAT(verify(holder, context).first_difference,
                testing::AllOf(testing::StartsWith("buffer running_mean: rank"),
                               HasSubstr("hvd::broadcast_parameters(model)")));
    EXPECT_EQ(NamedTensors(*holder).size(), 2u);
    EXPECT_EQ(NamedTensors::of(*holder).size(), 5u);
  });
}

TEST_P(Collectives, BroadcastParametersTakesBuffersAndSharedOnesOnce) {
  on_ranks(GetParam(), [&](Context& context) {
    torch::nn::Sequential net;
    for (int layer = 0; layer < 10; ++layer) {
      net->push_back(torch::nn::Linear(4, 4));
      net->push_back(torch::nn::BatchNorm1d(4));
    }
    const torch::NoGradGuard no_grad;
    for (auto& parameter : net->parameters()) parameter.fill_(context.rank() + 1);
    for (auto& buffer : net->buffers()) buffer.fill_(context.rank() + 1);
    const Stats before = context.stats();
    broadcast_parameters(net, 0, context);
    const Stats after = context.stats();
    EXPECT_EQ(after.submitted - before.submitted, 70u);
    if (context.size() > 1) {  // alone, each is over before the next is submitted
      EXPECT_LT(after.collectives - before.collectives, 70u);
    }
    for (const auto& [name, tensor] : NamedTensors::of(*net).items()) {
      EXPECT_TRUE(tensor.eq(1).all().item<bool>()) << name;
    }
    for (const auto& parameter : net->parameters()) {
      EXPECT_TRUE(parameter.requires_grad() && parameter.is_leaf());
    }

    const torch::Tensor tensor = torch::full({2}, context.rank());
    const auto submitted = context.stats().submitted;
    broadcast_parameters(NamedTensors{{"a", tensor}, {"b", tensor}}, context.size() - 1, context);
    EXPECT_EQ(context.stats().submitted, submitted + 1);
    EXPECT_TRUE(tensor.eq(context.size() - 1).all().item<bool>());
  });
}

TEST(DefaultContext, IsWhatTheShortFormsUse) {
  EXPECT_EQ(code_of([] { (void)allreduce(torch::ones({2})); }), Errc::not_initialized);
  init(Config{});
  const torch::Tensor tensor = torch::arange(3.0);
  expect_near(allreduce(tensor), tensor, "allreduce");
  expect_near(allreduce_async(tensor).wait(), tensor, "allreduce_async");
  expect_near(allreduce_(tensor), tensor, "allreduce_");
  expect_near(allreduce_async_(tensor).wait(), tensor, "allreduce_async_");
  expect_near(allgather(tensor), tensor, "allgather");
  expect_near(allgather_async(tensor).wait(), tensor, "allgather_async");
  expect_near(broadcast(tensor), tensor, "broadcast");
  expect_near(broadcast_async(tensor).wait(), tensor, "broadcast_async");
  expect_near(broadcast_(tensor), tensor, "broadcast_");
  const TensorWork work = broadcast_async_(tensor);
  EXPECT_TRUE(work.wait_until(Clock::now() + std::chrono::seconds(30)));
  EXPECT_TRUE(work.done());
  EXPECT_EQ(work.error(), nullptr);
  expect_near(reducescatter(tensor), tensor, "reducescatter");
  expect_near(reducescatter_async(tensor).wait(), tensor, "reducescatter_async");
  expect_near(alltoall(tensor, {3}).output, tensor, "alltoall");
  EXPECT_EQ(alltoall_async(tensor).wait().received_splits, std::vector<std::int64_t>{3});
  const Tensors group{tensor, tensor.view({3, 1})};
  const auto expect_group = [&group](const Tensors& result, const char* what) {
    ASSERT_EQ(result.size(), 2u) << what;
    for (std::size_t i = 0; i < 2; ++i) expect_near(result[i], group[i], what);
  };
  expect_group(grouped_allreduce(group), "grouped_allreduce");
  expect_group(grouped_allreduce_async(group).wait(), "grouped_allreduce_async");
  expect_group(grouped_allreduce_(group), "grouped_allreduce_");
  expect_group(grouped_allreduce_async_(group).wait(), "grouped_allreduce_async_");
  expect_group(grouped_allgather(group), "grouped_allgather");
  expect_group(grouped_allgather_async(group).wait(), "grouped_allgather_async");
  expect_group(grouped_broadcast(group), "grouped_broadcast");
  expect_group(grouped_broadcast_async(group).wait(), "grouped_broadcast_async");
  expect_group(grouped_broadcast_(group), "grouped_broadcast_");
  expect_group(grouped_broadcast_async_(group).wait(), "grouped_broadcast_async_");
  expect_group(grouped_reducescatter(group), "grouped_reducescatter");
  expect_group(grouped_reducescatter_async(group).wait(), "grouped_reducescatter_async");
  EXPECT_EQ(grouped_alltoall(group).size(), 2u);
  EXPECT_EQ(grouped_alltoall_async(group, {{3}, {3}}).wait().size(), 2u);
  EXPECT_TRUE(grouped_allreduce({}).empty());
  expect_near(sparse_allreduce(tensor.to_sparse()).to_dense(), tensor, "sparse_allreduce");
  const SparseWork sparse = sparse_allreduce_async(tensor.to_sparse());
  expect_near(sparse.wait().to_dense(), tensor, "sparse_allreduce_async");
  EXPECT_TRUE(sparse.done());
  expect_near(adasum(tensor), tensor, "adasum");
  EXPECT_EQ(broadcast_object(std::string("x")), "x");
  EXPECT_EQ(allgather_object(std::string("x")), std::vector<std::string>{"x"});
  EXPECT_DOUBLE_EQ(average_metric(2.5), 2.5);
  EXPECT_EQ(join({.average_over_contributors = true}), 0);
  EXPECT_EQ(join(), 0);
  torch::nn::Linear layer(2, 2);
  broadcast_parameters(layer);
  EXPECT_TRUE(verify(layer));
  shutdown();
}

}  // namespace
}  // namespace hvd
