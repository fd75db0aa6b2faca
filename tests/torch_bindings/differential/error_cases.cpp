// Tests which errors ranks get, where and when, and that the same names work afterwards.
#include <gmock/gmock.h>

#include "suite.hpp"

namespace hvd::test {
namespace {

using testing::HasSubstr;

using Call = std::function<void(Context&, bool odd)>;  ///< `odd`: on the rank that differs

void expect_usable(Context& context, const std::string& name) {
  const torch::Tensor one = torch::ones({3});
  EXPECT_TRUE(torch::equal(allreduce(one, {.name = name, .context = &context}), one));
}

/// The last rank asks for something else. Every rank must fail with a text that contains `part`.
NamedCase mismatch(const std::string& what, const std::string& part, const Call& call) {
  return {"mismatch_of_" + what, [call, part](const Member& member) {
            Context& context = member.context;
            if (context.size() == 1) return call(context, false);
            const bool odd = context.rank() == context.size() - 1;
            std::string message;
            EXPECT_EQ(code_of([&] { call(context, odd); }, &message), Errc::mismatch);
            EXPECT_THAT(message, HasSubstr("asked"));
            EXPECT_THAT(message, HasSubstr(part));
            expect_usable(context, "asked");
          }};
}

/// A mistake of this rank alone must be thrown at once, and nothing is sent.
NamedCase refused(const std::string& what, Errc code, const std::string& part,
                  const std::function<void(const Member&)>& call) {
  return {"refused_" + what, [=](const Member& member) {
            const auto before = member.context.stats().submitted;
            std::string message;
            EXPECT_EQ(code_of([&] { call(member); }, &message), code);
            EXPECT_THAT(message, HasSubstr(part));
            EXPECT_EQ(member.context.stats().submitted, before);
            expect_usable(member.context, "refused");
          }};
}

torch::Tensor ones(bool odd, torch::IntArrayRef usual, torch::IntArrayRef other) {
  return torch::ones(odd ? other : usual);
}
torch::ScalarType float_or_int(bool odd) { return odd ? torch::kInt32 : torch::kFloat32; }

void add_mismatches(std::vector<NamedCase>& cases) {
  const auto named = [](Context& context) {
    return CollectiveOptions{.name = "asked", .context = &context};
  };
  const auto add = [&cases](const std::string& what, const std::string& part, const Call& call) {
    cases.push_back(mismatch(what, part, call));
  };
  add("allreduce_shape", "[3,2]", [](Context& context, bool odd) {
    (void)allreduce(ones(odd, {2, 3}, {3, 2}), {.name = "asked", .context = &context});
  });
  add("allreduce_in_place_shape", "[7]", [](Context& context, bool odd) {
    (void)allreduce_(ones(odd, {6}, {7}), {.name = "asked", .context = &context});
  });
  add("allreduce_op", "max", [](Context& context, bool odd) {
    (void)allreduce(
        torch::ones({2}),
        {.name = "asked", .op = odd ? ReduceOp::max : ReduceOp::min, .context = &context});
  });
  add("allreduce_prescale", "scale", [](Context& context, bool odd) {
    (void)allreduce(torch::ones({2}),
                    {.name = "asked", .prescale = odd ? 2.0 : 1.0, .context = &context});
  });
  add("allreduce_postscale", "scale", [](Context& context, bool odd) {
    (void)allreduce(torch::ones({2}),
                    {.name = "asked", .postscale = odd ? 2.0 : 1.0, .context = &context});
  });
  add("allreduce_compression", "f16", [](Context& context, bool odd) {
    (void)allreduce(torch::ones({2}), {.name = "asked", .context = &context},
                    odd ? Compression::fp16 : Compression::none);
  });
  add("allreduce_dtype", "i32", [](Context& context, bool odd) {
    (void)allreduce(torch::ones({2}, float_or_int(odd)), {.name = "asked", .context = &context});
  });
  add("allgather_dtype", "i32", [named](Context& context, bool odd) {
    (void)allgather(torch::ones({2}, float_or_int(odd)), named(context));
  });
  add("allgather_columns", "[*,4]", [named](Context& context, bool odd) {
    (void)allgather(ones(odd, {2, 3}, {2, 4}), named(context));
  });
  add("allgather_dimensions", "[*]", [named](Context& context, bool odd) {
    (void)allgather(ones(odd, {2, 3}, {2}), named(context));
  });
  add("broadcast_shape", "[4]", [named](Context& context, bool odd) {
    (void)broadcast(ones(odd, {3}, {4}), 0, named(context));
  });
  add("broadcast_dtype", "i32", [named](Context& context, bool odd) {
    (void)broadcast_(torch::ones({2}, float_or_int(odd)), 0, named(context));
  });
  add("broadcast_root", "root", [named](Context& context, bool odd) {
    (void)broadcast(torch::ones({2}), odd ? context.rank() : 0, named(context));
  });
  add("reducescatter_rows", "[5,2]", [](Context& context, bool odd) {
    (void)reducescatter(ones(odd, {4, 2}, {5, 2}), {.name = "asked", .context = &context});
  });
  add("reducescatter_op", "sum", [](Context& context, bool odd) {
    (void)reducescatter(
        torch::ones({4}),
        {.name = "asked", .op = odd ? ReduceOp::sum : ReduceOp::average, .context = &context});
  });
  add("reducescatter_dtype", "i32", [](Context& context, bool odd) {
    (void)reducescatter(torch::ones({4}, float_or_int(odd)),
                        {.name = "asked", .context = &context});
  });
  add("alltoall_columns", "4]", [named](Context& context, bool odd) {
    const std::int64_t rows = context.size();
    (void)alltoall(ones(odd, {rows, 3}, {rows, 4}), {}, named(context));
  });
  add("alltoall_dtype", "i32", [named](Context& context, bool odd) {
    (void)alltoall(torch::ones({context.size()}, float_or_int(odd)), {}, named(context));
  });
  add("kind", "allgather", [named](Context& context, bool odd) {
    if (odd) {
      (void)allgather(torch::ones({2}), named(context));
    } else {
      (void)broadcast(torch::ones({2}), 0, named(context));
    }
  });
  add("grouped_allreduce_shape", "[9]", [](Context& context, bool odd) {
    (void)grouped_allreduce({torch::ones({2}), ones(odd, {8}, {9})},
                            {.name = "asked", .context = &context});
  });
  add("grouped_allgather_dtype", "i32", [named](Context& context, bool odd) {
    (void)grouped_allgather({torch::ones({2}), torch::ones({2}, float_or_int(odd))},
                            named(context));
  });
}

void add_sparse(std::vector<NamedCase>& cases) {
  cases.push_back({"mismatch_of_sparse_sizes", [](const Member& member) {
                     Context& context = member.context;
                     if (context.size() == 1) return;
                     const bool odd = context.rank() == context.size() - 1;
                     const torch::Tensor tensor = torch::eye(odd ? 4 : 3).to_sparse();
                     std::string message;
                     const auto call = [&] {
                       (void)sparse_allreduce(tensor, {.context = &context});
                     };
                     EXPECT_EQ(code_of(call, &message), Errc::mismatch);
                     EXPECT_THAT(message, HasSubstr("[4, 4]"));
                     expect_usable(context, "sparse");
                   }});
  const auto add = [&cases](const std::string& what, const std::string& part,
                            const torch::Tensor& tensor, const AllreduceOptions& options) {
    cases.push_back(refused(what, Errc::invalid_argument, part, [=](const Member& member) {
      AllreduceOptions of_member = options;
      of_member.context = &member.context;
      (void)sparse_allreduce(tensor, of_member);
    }));
  };
  const torch::Tensor sparse = torch::eye(3).to_sparse();
  add("sparse_allreduce_of_dense", "not sparse", torch::eye(3), {});
  add("sparse_allreduce_max", "max", sparse, {.op = ReduceOp::max});
  add("sparse_allreduce_scaled_integers", "floating", sparse.to(torch::kInt32), {.prescale = 2});
  add("sparse_allreduce_average_of_bool", "bool", sparse.to(torch::kBool), {});
}

void add_refused(std::vector<NamedCase>& cases) {
  const auto add = [&cases](const std::string& what, const std::string& part,
                            const std::function<void(Context&)>& call,
                            Errc code = Errc::invalid_argument) {
    cases.push_back(
        refused(what, code, part, [call](const Member& member) { call(member.context); }));
  };
  const torch::Tensor sparse = torch::eye(3).to_sparse();
  const torch::Tensor complex = torch::empty({2}, torch::kComplexHalf);
  const torch::Tensor overlapping = torch::ones({1}).expand({4});
  add(
      "sparse_in_allreduce", "Sparse",
      [=](Context& c) { (void)allreduce(sparse, {.context = &c}); }, Errc::unsupported);
  add(
      "sparse_in_a_group", "allgather 'g/1'",
      [=](Context& c) {
        (void)grouped_allgather({torch::ones({2}), sparse}, {.name = "g", .context = &c});
      },
      Errc::unsupported);
  add(
      "complex_half_in_reducescatter", "ComplexHalf",
      [=](Context& c) { (void)reducescatter(complex, {.context = &c}); }, Errc::unsupported);
  add(
      "complex_half_in_alltoall", "ComplexHalf",
      [=](Context& c) { (void)alltoall(complex, {}, {.context = &c}); }, Errc::unsupported);
  add(
      "meta_in_broadcast", "meta",
      [](Context& c) { (void)broadcast(torch::ones({2}, torch::kMeta), 0, {.context = &c}); },
      Errc::unsupported);
  add("undefined", "allgather 'u': the tensor is undefined",
      [](Context& c) { (void)allgather(torch::Tensor(), {.name = "u", .context = &c}); });
  add("overlapping_in_place", "share memory",
      [=](Context& c) { allreduce_(overlapping, {.context = &c}); });
  add("overlapping_in_a_group", "share memory", [=](Context& c) {
    grouped_broadcast_({torch::ones({2}), overlapping}, 0, {.context = &c});
  });
  add("average_of_bool", "bool",
      [](Context& c) { (void)allreduce(torch::ones({2}, torch::kBool), {.context = &c}); });
  add("infinite_scale", "finite", [](Context& c) {
    (void)allreduce(torch::ones({2}),
                    {.prescale = std::numeric_limits<double>::infinity(), .context = &c});
  });
  add("scalar_in_reducescatter", "scalar",
      [](Context& c) { (void)reducescatter(torch::ones({}), {.context = &c}); });
  add("scalar_in_alltoall", "scalar",
      [](Context& c) { (void)alltoall(torch::ones({}), {}, {.context = &c}); });
  add("splits_that_do_not_add_up", "rows", [](Context& c) {
    const std::vector<std::int64_t> splits(static_cast<std::size_t>(c.size()), 2);
    (void)alltoall(torch::ones({2 * c.size() + 1}), splits, {.context = &c});
  });
  add("splits_for_other_ranks", "splits", [](Context& c) {
    const std::vector<std::int64_t> splits(static_cast<std::size_t>(c.size()) + 1, 1);
    (void)alltoall(torch::ones({c.size() + 1}), splits, {.context = &c});
  });
  add("negative_split", "negative", [](Context& c) {
    std::vector<std::int64_t> splits(static_cast<std::size_t>(c.size()), 0);
    splits.front() = -1;
    (void)alltoall(torch::ones({3}), splits, {.context = &c});
  });
  add("splits_for_another_number_of_tensors", "1 splits for 2 tensors", [](Context& c) {
    (void)grouped_alltoall({torch::ones({4}), torch::ones({4})}, {{1, 1, 1, 1}}, {.context = &c});
  });
  add("root_out_of_range", "root",
      [](Context& c) { (void)broadcast(torch::ones({2}), c.size(), {.context = &c}); });
  add("unknown_process_set", "process set",
      [](Context& c) { (void)allreduce(torch::ones({2}), {.process_set = 9999, .context = &c}); });
  add("name_that_is_too_long", "1,024", [](Context& c) {
    (void)allreduce(torch::ones({2}), {.name = std::string(1025, 'n'), .context = &c});
  });
  cases.push_back({"refused_rows_that_are_not_even", [](const Member& member) {
                     Context& context = member.context;
                     if (context.size() == 1) return;
                     std::string message;
                     const auto call = [&] {
                       (void)alltoall(torch::ones({context.size() + 1}), {}, {.context = &context});
                     };
                     EXPECT_EQ(code_of(call, &message), Errc::invalid_argument);
                     EXPECT_THAT(message, HasSubstr("evenly"));
                   }});
  cases.push_back({"refused_a_process_set_of_others", [](const Member& member) {
                     Context& context = member.context;
                     if (context.size() == 1) return;
                     // Ids are assigned in the order of the calls, so those of the two halves
                     // differ by one.
                     const auto others = member.half.id + (context.rank() % 2 == 0 ? 1 : -1);
                     std::string message;
                     const auto call = [&] {
                       (void)allreduce(torch::ones({2}),
                                       {.process_set = others, .context = &context});
                     };
                     EXPECT_EQ(code_of(call, &message), Errc::invalid_argument);
                     EXPECT_THAT(message, HasSubstr("not in process set"));
                   }});
  cases.push_back(
      {"refused_a_name_that_is_pending", [](const Member& member) {
         Context& context = member.context;
         if (context.size() == 1) return;
         // All ranks but the last submit, so the first operation stays pending.
         const torch::Tensor one = torch::ones({2});
         if (context.rank() == context.size() - 1) {
           barrier({.name = "second was tried", .context = &context});
           EXPECT_TRUE(torch::equal(allreduce(one, {.name = "twice", .context = &context}), one));
           return;
         }
         const TensorWork first = allreduce_async(one, {.name = "twice", .context = &context});
         const auto second = [&] { (void)allreduce(one, {.name = "twice", .context = &context}); };
         EXPECT_EQ(code_of(second), Errc::duplicate_name);
         barrier({.name = "second was tried", .context = &context});
         EXPECT_TRUE(torch::equal(first.wait(), one));
       }});
}

void add_gradients(std::vector<NamedCase>& cases) {
  for (const auto op : {ReduceOp::min, ReduceOp::max, ReduceOp::product}) {
    cases.push_back(
        {std::string("no_gradient_of_").append(to_string(op)), [op](const Member& member) {
           const torch::Tensor leaf = torch::ones({3}, torch::requires_grad());
           const torch::Tensor loss =
               allreduce(leaf, {.name = "loss", .op = op, .context = &member.context}).sum();
           std::string message;
           EXPECT_EQ(code_of([&] { loss.backward(); }, &message), Errc::unsupported);
           EXPECT_THAT(message, HasSubstr(std::string(to_string(op))));
           EXPECT_THAT(message, HasSubstr("loss"));
           expect_usable(member.context, "loss");
         }});
  }
  cases.push_back(
      {"error_in_backward_arrives", [](const Member& member) {
         Context& context = member.context;
         if (context.size() == 1) return;
         // Instead of the backward pass, the last rank calls another operation.
         const torch::Tensor leaf = torch::ones({4}, torch::requires_grad());
         const bool odd = context.rank() == context.size() - 1;
         const torch::Tensor result = allreduce(leaf, {.name = "x", .context = &context});
         const AllreduceOptions other{
             .name = "x/backward", .op = ReduceOp::max, .context = &context};
         if (odd) {
           EXPECT_EQ(code_of([&] { (void)allreduce(leaf.detach(), other); }), Errc::mismatch);
         } else {
           EXPECT_EQ(code_of([&] { result.sum().backward(); }), Errc::mismatch);
         }
         expect_usable(context, "x/backward");
       }});
}

}  // namespace

std::vector<NamedCase> error_cases() {
  std::vector<NamedCase> cases;
  add_mismatches(cases);
  add_sparse(cases);
  add_refused(cases);
  add_gradients(cases);
  return cases;
}

}  // namespace hvd::test
