#include "collective_case.hpp"

#include <algorithm>

namespace hvd::test {
namespace {

bool is_integral(torch::ScalarType dtype) { return torch::isIntegralType(dtype, true); }

/// Returns the dtype in which the expected values are computed.
torch::ScalarType wide_type(torch::ScalarType dtype) {
  return torch::isComplexType(dtype) ? torch::kComplexDouble : torch::kFloat64;
}

int root_of(const std::vector<int>& ranks) { return ranks.back(); }

std::int64_t rows_of(const CollectiveCase& that, int rank, std::size_t ranks) {
  const auto size = static_cast<std::int64_t>(ranks);
  switch (that.kind) {
    case OpKind::allgather:
      return that.rows == Rows::uneven ? rank : 2;
    case OpKind::reducescatter:
      return that.rows == Rows::few      ? size - 1
             : that.rows == Rows::uneven ? 2 * size + 1
                                         : 2 * size;
    case OpKind::alltoall: {
      std::int64_t rows = 0;
      for (const std::int64_t split : splits_of(that, rank, ranks)) rows += split;
      return rows;
    }
    default:
      return 4;
  }
}

torch::Tensor reduced(const CollectiveCase& that, const Tensors& inputs) {
  const bool integral = is_integral(that.dtype);
  const auto scale = [integral](const torch::Tensor& values, double factor) {
    if (factor == 1) return values;
    return integral ? (values * factor).trunc() : values * factor;
  };
  Tensors scaled;
  for (const torch::Tensor& input : inputs) scaled.push_back(scale(input, that.prescale));
  const torch::Tensor all = torch::stack(scaled);
  switch (that.op) {
    case ReduceOp::sum:
      return scale(all.sum(0), that.postscale);
    case ReduceOp::average: {
      const double factor = that.postscale / static_cast<double>(inputs.size());
      return integral ? (all.sum(0) * factor + all.sum(0).sign() * 1e-9).trunc()
                      : all.sum(0) * factor;
    }
    case ReduceOp::min:
      return scale(std::get<0>(all.min(0)), that.postscale);
    case ReduceOp::max:
      return scale(std::get<0>(all.max(0)), that.postscale);
    default:
      return scale(all.prod(0), that.postscale);
  }
}

double tolerance(const CollectiveCase& that) {
  if (is_integral(that.dtype)) return 0;
  const bool wide = that.dtype == torch::kFloat32 || that.dtype == torch::kFloat64;
  if (that.dtype == torch::kBFloat16 || (wide && that.compression == Compression::bf16))
    return 3e-2;
  if (that.dtype == torch::kFloat16 || (wide && that.compression == Compression::fp16)) return 4e-3;
  const bool single = that.dtype == torch::kFloat32 || that.dtype == torch::kComplexFloat;
  return single ? 1e-5 : 1e-12;
}

void expect_close(const torch::Tensor& actual, const torch::Tensor& wanted,
                  const CollectiveCase& that, torch::ScalarType dtype, const std::string& what) {
  ASSERT_TRUE(actual.defined()) << what;
  EXPECT_EQ(actual.scalar_type(), dtype) << what;
  ASSERT_EQ(actual.sizes(), wanted.sizes()) << what;
  const double near = tolerance(that);
  const torch::ScalarType wide = wide_type(dtype);
  EXPECT_TRUE(
      torch::allclose(actual.detach().to(wide), wanted.detach().to(dtype).to(wide), near, near))
      << what << "\nis " << actual << "\nnot " << wanted;
}

struct Outcome {
  Tensors results;
  std::vector<std::vector<std::int64_t>> received;  ///< alltoall only

  void add(const AlltoallResult& result) {
    results.push_back(result.output);
    received.push_back(result.received_splits);
  }
};

/// Calls the collective that the case describes.
class Caller {
 public:
  Caller(const CollectiveCase& that, const Member& member)
      : that_(that),
        context_(member.context),
        set_(that.in_half ? member.half.id : 0),
        ranks_(member.ranks(that.in_half)) {}

  Outcome blocking(const Tensors& tensors) const {
    const int root = root_of(ranks_);
    const Compression compression = that_.compression;
    const torch::Tensor& one = tensors.front();
    if (that_.kind == OpKind::alltoall) return blocking_alltoall(tensors);
    if (that_.group > 0) {
      switch (that_.kind) {
        case OpKind::allreduce:
          return {that_.in_place ? grouped_allreduce_(tensors, reduce(), compression)
                                 : grouped_allreduce(tensors, reduce(), compression),
                  {}};
        case OpKind::broadcast:
          return {that_.in_place ? grouped_broadcast_(tensors, root, plain())
                                 : grouped_broadcast(tensors, root, plain()),
                  {}};
        case OpKind::allgather:
          return {grouped_allgather(tensors, plain()), {}};
        default:
          return {grouped_reducescatter(tensors, reduce(), compression), {}};
      }
    }
    switch (that_.kind) {
      case OpKind::allreduce:
        return {{that_.in_place ? allreduce_(one, reduce(), compression)
                                : allreduce(one, reduce(), compression)},
                {}};
      case OpKind::broadcast:
        return {{that_.in_place ? broadcast_(one, root, plain()) : broadcast(one, root, plain())},
                {}};
      case OpKind::allgather:
        return {{allgather(one, plain())}, {}};
      default:
        return {{reducescatter(one, reduce(), compression)}, {}};
    }
  }

  Outcome async(const Tensors& tensors) const {
    if (that_.kind == OpKind::alltoall) return async_alltoall(tensors);
    if (that_.group > 0) return {async_group(tensors).wait(), {}};
    return {{async_single(tensors.front()).wait()}, {}};
  }

 private:
  AllreduceOptions reduce() const {
    return {.op = that_.op,
            .prescale = that_.prescale,
            .postscale = that_.postscale,
            .process_set = set_,
            .context = &context_};
  }
  CollectiveOptions plain() const { return {.process_set = set_, .context = &context_}; }
  std::vector<std::int64_t> splits() const {
    return splits_of(that_, context_.rank(), ranks_.size());
  }
  /// Even splits may be omitted.
  SplitsOfEach splits_of_each(const Tensors& tensors) const {
    return that_.rows == Rows::even ? SplitsOfEach() : SplitsOfEach(tensors.size(), splits());
  }

  Outcome blocking_alltoall(const Tensors& tensors) const {
    Outcome outcome;
    if (that_.group == 0) {
      outcome.add(alltoall(tensors.front(), splits(), plain()));
      return outcome;
    }
    for (const auto& each : grouped_alltoall(tensors, splits_of_each(tensors), plain())) {
      outcome.add(each);
    }
    return outcome;
  }
  Outcome async_alltoall(const Tensors& tensors) const {
    Outcome outcome;
    if (that_.group == 0) {
      const std::vector<std::int64_t> rows = splits();
      const bool even = that_.rows == Rows::even;
      outcome.add(alltoall_async(tensors.front(),
                                 even ? torch::IntArrayRef() : torch::IntArrayRef(rows), plain())
                      .wait());
      return outcome;
    }
    for (const auto& each :
         grouped_alltoall_async(tensors, splits_of_each(tensors), plain()).wait()) {
      outcome.add(each);
    }
    return outcome;
  }
  TensorGroupWork async_group(const Tensors& tensors) const {
    const Compression compression = that_.compression;
    const int root = root_of(ranks_);
    switch (that_.kind) {
      case OpKind::allreduce:
        return that_.in_place ? grouped_allreduce_async_(tensors, reduce(), compression)
                              : grouped_allreduce_async(tensors, reduce(), compression);
      case OpKind::broadcast:
        return that_.in_place ? grouped_broadcast_async_(tensors, root, plain())
                              : grouped_broadcast_async(tensors, root, plain());
      case OpKind::allgather:
        return grouped_allgather_async(tensors, plain());
      default:
        return grouped_reducescatter_async(tensors, reduce(), compression);
    }
  }
  TensorWork async_single(const torch::Tensor& one) const {
    const Compression compression = that_.compression;
    const int root = root_of(ranks_);
    switch (that_.kind) {
      case OpKind::allreduce:
        return that_.in_place ? allreduce_async_(one, reduce(), compression)
                              : allreduce_async(one, reduce(), compression);
      case OpKind::broadcast:
        return that_.in_place ? broadcast_async_(one, root, plain())
                              : broadcast_async(one, root, plain());
      case OpKind::allgather:
        return allgather_async(one, plain());
      default:
        return reducescatter_async(one, reduce(), compression);
    }
  }

  const CollectiveCase& that_;
  Context& context_;
  std::int32_t set_;
  std::vector<int> ranks_;
};

/// Returns the inputs of every rank, by tensor and then by position among the ranks.
std::vector<Tensors> all_inputs(const CollectiveCase& that, const std::vector<int>& ranks) {
  std::vector<Tensors> inputs;
  for (int tensor = 0; tensor < std::max(that.group, 1); ++tensor) {
    Tensors& of_tensor = inputs.emplace_back();
    for (const int rank : ranks) of_tensor.push_back(input_of(that, rank, ranks.size(), tensor));
  }
  return inputs;
}

/// Returns the loss of one rank. Its weights differ by rank and it has a square, so that no
/// gradient is constant.
torch::Tensor loss_of(const torch::Tensor& result, int rank) {
  const torch::Tensor real = result.is_complex() ? torch::view_as_real(result) : result;
  const torch::Tensor wide = real.to(torch::kFloat64);
  return (wide * (rank + 1)).sum() + 0.5 * wide.square().sum();
}

void check_gradient(const CollectiveCase& that, const Member& member, const Caller& caller) {
  const std::vector<int> ranks = member.ranks(that.in_half);
  const int rank = member.context.rank();
  const auto place =
      static_cast<std::size_t>(std::lower_bound(ranks.begin(), ranks.end(), rank) - ranks.begin());

  // Computes the loss of all ranks together in one process.
  const std::vector<Tensors> inputs = all_inputs(that, ranks);
  Tensors wanted;
  for (const Tensors& of_tensor : inputs) {
    Tensors leaves;
    for (const auto& input : of_tensor) {
      leaves.push_back(input.to(wide_type(that.dtype)).detach().requires_grad_());
    }
    torch::Tensor total = torch::zeros({}, torch::kFloat64);
    const Tensors results = simulate(that, ranks, leaves);
    for (std::size_t i = 0; i < ranks.size(); ++i) total = total + loss_of(results[i], ranks[i]);
    total.backward();
    const torch::Tensor gradient = leaves[place].grad();
    wanted.push_back(gradient.defined() ? gradient : torch::zeros_like(leaves[place]));
  }

  Tensors leaves;
  Tensors mine;
  for (const Tensors& of_tensor : inputs) {
    leaves.push_back(of_tensor[place].detach().requires_grad_());
    mine.push_back(leaves.back() * 1);
  }
  const Tensors results = caller.blocking(mine).results;
  torch::Tensor loss = torch::zeros({}, torch::kFloat64);
  for (const torch::Tensor& result : results) {
    EXPECT_TRUE(result.requires_grad());
    loss = loss + loss_of(result, rank);
  }
  loss.backward();
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    expect_close(leaves[i].grad(), wanted[i], that, that.dtype, "gradient");
    EXPECT_TRUE(torch::equal(leaves[i].detach(), inputs[i][place])) << "the input was changed";
  }
}

}  // namespace

std::string CollectiveCase::name() const {
  std::string text(to_string(kind));
  if (reduces(kind)) text.append("_").append(to_string(op));
  text.append("_").append(c10::toString(dtype));
  if (in_place) text += "_in_place";
  if (group > 0) text.append("_grouped").append(std::to_string(group));
  if (in_half) text += "_process_set";
  if (prescale != 1 || postscale != 1) text += "_scaled";
  if (compression != Compression::none) {
    text += compression == Compression::fp16 ? "_to_fp16" : "_to_bf16";
  }
  if (layout == Layout::transposed) text += "_transposed";
  if (layout == Layout::scalar) text += "_scalar";
  if (layout == Layout::empty) text += "_empty";
  if (rows == Rows::uneven) text += "_uneven";
  if (rows == Rows::few) text += "_fewer_rows_than_ranks";
  if (gradient) text += "_autograd";
  return text;
}

std::vector<std::int64_t> splits_of(const CollectiveCase& that, int rank, std::size_t ranks) {
  std::vector<std::int64_t> splits;
  for (std::size_t to = 0; to < ranks; ++to) {
    const auto uneven = static_cast<std::int64_t>((static_cast<std::size_t>(rank) + 2 * to) % 3);
    splits.push_back(that.rows == Rows::uneven ? uneven : 2);
  }
  return splits;
}

torch::Tensor input_of(const CollectiveCase& that, int rank, std::size_t ranks, int tensor) {
  if (that.layout == Layout::scalar) return torch::full({}, rank % 3 + tensor).to(that.dtype);
  const std::int64_t rows = rows_of(that, rank, ranks);
  const std::int64_t columns = that.layout == Layout::empty ? 0 : 3;
  const torch::Tensor count = torch::arange(rows * columns).view({rows, columns});
  torch::Tensor values = (count + rank + tensor) % 4;
  if (that.dtype != torch::kUInt8) values = values - 1;
  if (!is_integral(that.dtype)) values = values.to(torch::kFloat64) * 0.5;
  if (torch::isComplexType(that.dtype)) values = torch::complex(values, 1 - 3 * values);
  if (that.dtype == torch::kBool) values = (count + rank + tensor) % 3 == 0;
  values = values.to(that.dtype);
  return that.layout == Layout::transposed ? values.t().contiguous().t() : values;
}

Tensors simulate(const CollectiveCase& that, const std::vector<int>& ranks, const Tensors& inputs) {
  const auto size = static_cast<std::int64_t>(ranks.size());
  Tensors results;
  for (std::size_t place = 0; place < ranks.size(); ++place) {
    switch (that.kind) {
      case OpKind::allreduce:
        results.push_back(reduced(that, inputs));
        break;
      case OpKind::broadcast:
        results.push_back(inputs.back());
        break;
      case OpKind::allgather: {
        Tensors rows;
        for (const auto& input : inputs) rows.push_back(input.dim() == 0 ? input.view(1) : input);
        results.push_back(torch::cat(rows));
        break;
      }
      case OpKind::reducescatter: {
        const torch::Tensor all = reduced(that, inputs);
        std::vector<std::int64_t> parts;
        for (std::int64_t i = 0; i < size; ++i) {
          parts.push_back(all.size(0) / size + (i < all.size(0) % size ? 1 : 0));
        }
        results.push_back(all.split_with_sizes(parts)[place]);
        break;
      }
      default: {
        Tensors rows;
        for (std::size_t from = 0; from < ranks.size(); ++from) {
          const auto splits = splits_of(that, ranks[from], ranks.size());
          rows.push_back(inputs[from].split_with_sizes(splits)[place]);
        }
        results.push_back(torch::cat(rows));
      }
    }
  }
  return results;
}

void check_case(const CollectiveCase& that, const Member& member) {
  const std::vector<int> ranks = member.ranks(that.in_half);
  const int rank = member.context.rank();
  const auto place =
      static_cast<std::size_t>(std::lower_bound(ranks.begin(), ranks.end(), rank) - ranks.begin());
  const Caller caller(that, member);
  if (that.gradient) return check_gradient(that, member, caller);

  const std::vector<Tensors> inputs = all_inputs(that, ranks);
  for (const bool blocking : {true, false}) {
    const std::string form = blocking ? "blocking" : "async";
    Tensors mine;
    for (int tensor = 0; tensor < std::max(that.group, 1); ++tensor) {
      mine.push_back(input_of(that, rank, ranks.size(), tensor));
    }
    const Outcome outcome = blocking ? caller.blocking(mine) : caller.async(mine);
    ASSERT_EQ(outcome.results.size(), mine.size());
    for (std::size_t i = 0; i < mine.size(); ++i) {
      Tensors wide;
      for (const auto& input : inputs[i]) wide.push_back(input.to(wide_type(that.dtype)));
      const torch::Tensor wanted = simulate(that, ranks, wide)[place];
      expect_close(outcome.results[i], wanted, that, that.dtype, form);
      EXPECT_EQ(outcome.results[i].is_same(mine[i]), that.in_place) << form;
      if (!that.in_place) {
        EXPECT_TRUE(torch::equal(mine[i], inputs[i][place])) << form << ": the input was changed";
      }
      if (that.kind == OpKind::alltoall) {
        std::vector<std::int64_t> received;
        for (const int from : ranks) received.push_back(splits_of(that, from, ranks.size())[place]);
        EXPECT_EQ(outcome.received[i], received) << form;
      }
    }
  }
}

}  // namespace hvd::test
