// Compares Adasum with the formula on whole vectors in one process.
#include <gmock/gmock.h>

#include "job.hpp"

namespace hvd {
namespace {

using namespace test;  // NOLINT: a test
using testing::HasSubstr;

class Adasum : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Adasum, testing::Values(1, 2, 3, 4, 5));

torch::Tensor pair(const torch::Tensor& a, const torch::Tensor& b) {
  const torch::Tensor dot = (a * b).sum();
  const auto factor = [&dot](const torch::Tensor& one) {
    const torch::Tensor norm = one.square().sum();
    return norm.item<double>() > 0 ? 1 - dot / (2 * norm) : torch::ones({}, torch::kFloat64);
  };
  return factor(a) * a + factor(b) * b;
}

torch::Tensor tree(Tensors all) {
  while (all.size() > 1) {
    Tensors next;
    for (std::size_t i = 0; i + 1 < all.size(); i += 2) next.push_back(pair(all[i], all[i + 1]));
    if (all.size() % 2 == 1) next.push_back(all.back());
    all = next;
  }
  return all.front();
}

torch::Tensor gradient_of(int rank, torch::IntArrayRef shape, std::uint64_t tensor) {
  return normal(shape, 100 * tensor + static_cast<std::uint64_t>(rank)) + 0.3;
}

TEST_P(Adasum, EqualsTheTreeOfWholeVectorsForEachTensor) {
  Job job(GetParam());
  job.run([](const Member& member) {
    // Tensors of which a rank's part contains none, one, several, or pieces.
    const std::vector<std::vector<std::int64_t>> shapes{{7}, {2, 3}, {}, {0}, {41}, {5, 1}};
    for (const bool in_half : {false, true}) {
      const std::vector<int> ranks = member.ranks(in_half);
      for (const auto type :
           {torch::kFloat64, torch::kFloat32, torch::kFloat16, torch::kBFloat16}) {
        Tensors mine;
        Tensors wanted;
        for (std::size_t i = 0; i < shapes.size(); ++i) {
          Tensors all;
          for (const int rank : ranks) {
            all.push_back(gradient_of(rank, shapes[i], i).to(type).to(torch::kFloat64));
          }
          wanted.push_back(tree(all));
          mine.push_back(gradient_of(member.context.rank(), shapes[i], i).to(type));
        }
        adasum_(mine, {.name = "adasum",
                       .process_set = in_half ? member.half.id : 0,
                       .context = &member.context});
        const double near = type == torch::kFloat64   ? 1e-12
                            : type == torch::kFloat32 ? 1e-5
                            : type == torch::kFloat16 ? 2e-3
                                                      : 2e-2;
        for (std::size_t i = 0; i < shapes.size(); ++i) {
          EXPECT_EQ(mine[i].scalar_type(), type);
          EXPECT_TRUE(torch::allclose(mine[i].to(torch::kFloat64), wanted[i], near, near))
              << "tensor " << i << " is " << mine[i] << "\nnot " << wanted[i];
        }
      }
    }
  });
}

TEST_P(Adasum, AddsWhatIsOrthogonalAndAveragesWhatIsEqual) {
  const int size = GetParam();
  on_ranks(size, [&](Context& context) {
    torch::Tensor own = torch::zeros({8}, torch::kFloat64);
    own[context.rank()] = 3.0;
    torch::Tensor sum = torch::zeros({8}, torch::kFloat64);
    for (int rank = 0; rank < size; ++rank) sum[rank] = 3.0;
    EXPECT_TRUE(torch::allclose(adasum(own, {.context = &context}), sum));

    const torch::Tensor equal = torch::arange(1.0, 9.0, torch::kFloat64);
    EXPECT_TRUE(torch::allclose(adasum(equal, {.context = &context}), equal));
    // A gradient of zeros changes nothing.
    const torch::Tensor none = context.rank() == 0 ? equal : torch::zeros_like(equal);
    EXPECT_TRUE(torch::allclose(adasum(none, {.context = &context}), equal));
  });
}

TEST_P(Adasum, IsTheSameBitsOnAllRanksAndTakesAnyStrides) {
  on_ranks(GetParam(), [](Context& context) {
    const torch::Tensor whole = gradient_of(context.rank(), {30, 20}, 1);
    const torch::Tensor kept = whole.clone();
    const torch::Tensor contiguous = adasum(whole.t().contiguous(), {.context = &context});
    const torch::Tensor strided = adasum(whole.t(), {.context = &context});
    EXPECT_TRUE(equal_bits(contiguous, strided));
    EXPECT_TRUE(equal_bits(whole, kept));
    EXPECT_TRUE(verify(NamedTensors{{"result", contiguous}}, context));
  });
}

TEST_P(Adasum, TakesAComplexNumberAsTwoReals) {
  on_ranks(GetParam(), [](Context& context) {
    const torch::Tensor odd = gradient_of(context.rank(), {3}, 1);
    const torch::Tensor pairs = gradient_of(context.rank(), {5, 7, 2}, 2);
    const Tensors reals{odd.clone(), pairs.clone()};
    adasum_(reals, {.context = &context});
    const Tensors complex{odd.clone(), torch::view_as_complex(pairs.clone()).conj()};
    adasum_(complex, {.context = &context});
    EXPECT_TRUE(equal_bits(complex[0], reals[0]));
    EXPECT_TRUE(torch::allclose(torch::view_as_real(complex[1].conj()), reals[1]));
    const torch::Tensor wide = complex[1].to(torch::kComplexDouble);
    EXPECT_EQ(adasum(wide, {.context = &context}).scalar_type(), torch::kComplexDouble);
  });
}

TEST_P(Adasum, OfAnythingElseIsATypedError) {
  on_ranks(GetParam(), [](Context& context) {
    const auto before = context.stats().submitted;
    std::string message;
    EXPECT_EQ(code_of([&] { (void)adasum(torch::ones({2}, torch::kInt32), {.context = &context}); },
                      &message),
              Errc::invalid_argument);
    EXPECT_THAT(message, HasSubstr("Int"));
    EXPECT_EQ(code_of([&] {
                adasum_({torch::ones({2}), torch::Tensor()}, {.context = &context});
              }),
              Errc::invalid_argument);
    EXPECT_EQ(code_of([&] { (void)adasum(torch::eye(3).to_sparse(), {.context = &context}); }),
              Errc::invalid_argument);
    adasum_(Tensors{}, {.context = &context});
    EXPECT_EQ(context.stats().submitted, before);
  });
}

}  // namespace
}  // namespace hvd
