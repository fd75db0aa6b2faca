// Tests operations while some ranks have joined: every reduction on every dtype uses the others'
// data only, and operations that need all ranks throw.
#include <algorithm>

#include <gmock/gmock.h>

#include "collective_case.hpp"
#include "suite.hpp"

namespace hvd::test {
namespace {

using testing::HasSubstr;

constexpr std::array kDtypes{torch::kUInt8,   torch::kInt8,    torch::kInt16,    torch::kInt32,
                             torch::kInt64,   torch::kFloat16, torch::kBFloat16, torch::kFloat32,
                             torch::kFloat64, torch::kBool};

/// The first half of the ranks joins at once; the others have data.
bool joins_at_once(int rank, int size) { return rank < size / 2; }

std::vector<int> active_ones(const std::vector<int>& ranks, int size) {
  std::vector<int> active;
  std::copy_if(ranks.begin(), ranks.end(), std::back_inserter(active),
               [size](int rank) { return !joins_at_once(rank, size); });
  return active;
}

/// Joins and checks that all ranks are told the same last rank.
void join_all(Context& context, bool average_over_contributors, bool waited_for_all = true) {
  const int last =
      join({.average_over_contributors = average_over_contributors, .context = &context});
  if (waited_for_all) {
    EXPECT_FALSE(joins_at_once(last, context.size()));
  }
  const torch::Tensor of_all = allgather(torch::tensor(last), {.context = &context});
  EXPECT_TRUE(of_all.eq(last).all().item<bool>()) << of_all;
}

void check_reduction(const Member& member, const CollectiveCase& that) {
  Context& context = member.context;
  const int size = context.size();
  const bool over_contributors = that.op == ReduceOp::average;
  if (!joins_at_once(context.rank(), size)) {
    const std::vector<int> all = member.ranks(that.in_half);
    const std::vector<int> active = active_ones(all, size);
    const auto named = [&](const char* name) {
      return AllreduceOptions{.name = name,
                              .op = that.op,
                              .process_set = that.in_half ? member.half.id : 0,
                              .context = &context};
    };
    const auto input = [&](int rank, int tensor) {
      return input_of(that, rank, all.size(), tensor);
    };
    const auto expect = [&](const torch::Tensor& result, int tensor, const char* form) {
      Tensors inputs;
      for (const int rank : active) inputs.push_back(input(rank, tensor).to(torch::kFloat64));
      const torch::Tensor wanted = simulate(that, active, inputs).front().to(that.dtype);
      EXPECT_TRUE(torch::allclose(result.to(torch::kFloat64), wanted.to(torch::kFloat64), 1e-2,
                                  that.dtype == torch::kBFloat16 ? 1e-2 : 1e-3))
          << form << "\nis " << result << "\nnot " << wanted;
    };
    const int rank = context.rank();
    expect(allreduce(input(rank, 0), named("blocking")), 0, "blocking");
    const TensorWork work = allreduce_async(input(rank, 1), named("async"));
    const torch::Tensor own = input(rank, 2);
    expect(allreduce_(own, named("in place")), 2, "in place");
    expect(work.wait(), 1, "async");
    const Tensors group = grouped_allreduce({input(rank, 0), input(rank, 1)}, named("group"));
    for (int tensor = 0; tensor < 2; ++tensor) {
      expect(group[static_cast<std::size_t>(tensor)], tensor, "grouped");
    }
  }
  join_all(context, over_contributors, !that.in_half);
}

NamedCase refused(const std::string& what, const std::function<void(Context&)>& call) {
  return {"join_refuses_" + what, [call](const Member& member) {
            Context& context = member.context;
            if (!joins_at_once(context.rank(), context.size()) && context.size() > 1) {
              for (int twice = 0; twice < 2; ++twice) {
                std::string message;
                EXPECT_EQ(code_of([&] { call(context); }, &message), Errc::unsupported);
                EXPECT_THAT(message, HasSubstr(" joined"));
              }
              const torch::Tensor one = torch::ones({3});
              const torch::Tensor sum =
                  allreduce(one, {.name = "reduced", .op = ReduceOp::max, .context = &context});
              EXPECT_TRUE(torch::equal(sum, one));
            }
            join_all(context, false);
          }};
}

}  // namespace

std::vector<NamedCase> join_cases() {
  std::vector<NamedCase> cases;
  for (const auto dtype : kDtypes) {
    for (const auto op :
         {ReduceOp::average, ReduceOp::sum, ReduceOp::min, ReduceOp::max, ReduceOp::product}) {
      if (dtype == torch::kBool && op == ReduceOp::average) continue;
      CollectiveCase that{.dtype = dtype, .op = op};
      for (const bool in_half : {false, true}) {
        if (in_half && dtype != torch::kFloat32) continue;
        that.in_half = in_half;
        cases.push_back({"join_" + that.name(),
                         [that](const Member& member) { check_reduction(member, that); }});
      }
    }
  }
  const torch::Tensor one = torch::ones({4});
  const auto add = [&cases](const char* what, const std::function<void(Context&)>& call) {
    cases.push_back(refused(what, call));
  };
  // Ranks that have joined make fewer of these unnamed calls.
  add("allgather", [=](Context& c) { (void)allgather(one, {.context = &c}); });
  add("broadcast", [=](Context& c) { (void)broadcast_(one, c.size() - 1, {.context = &c}); });
  add("reducescatter", [=](Context& c) { (void)reducescatter(one, {.context = &c}); });
  add("alltoall", [=](Context& c) {
    (void)alltoall(torch::ones({c.size(), 2}), {}, {.context = &c});
  });
  add("grouped_allgather", [=](Context& c) {
    (void)grouped_allgather({one, one}, {.context = &c});
  });
  add("sparse_allreduce",
      [=](Context& c) { (void)sparse_allreduce(torch::eye(3).to_sparse(), {.context = &c}); });
  cases.push_back({"join_lets_barriers_pass", [](const Member& member) {
                     Context& context = member.context;
                     if (!joins_at_once(context.rank(), context.size())) {
                       barrier({.name = "among joined ranks", .context = &context});
                     }
                     join_all(context, false);
                   }});
  cases.push_back({"join_lets_object_calls_match", [](const Member& member) {
                     Context& context = member.context;
                     if (!joins_at_once(context.rank(), context.size())) {
                       for (int i = 0; i < 3; ++i)
                         (void)allreduce(torch::ones({2}), {.context = &context});
                       barrier({.context = &context});
                     }
                     join_all(context, false);
                     barrier({.context = &context});
                     const std::string mine = std::to_string(context.rank());
                     EXPECT_EQ(broadcast_object(mine, 0, {.context = &context}), "0");
                     EXPECT_EQ(allgather_object(mine, {.context = &context}).size(),
                               static_cast<std::size_t>(context.size()));
                   }});
  return cases;
}

}  // namespace hvd::test
