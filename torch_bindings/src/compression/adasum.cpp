#include <algorithm>

#include <fmt/format.h>

#include <hvd/hvd.hpp>
#include <hvd/torch/adasum.hpp>
#include <hvd/torch/grouped_collectives.hpp>

#include "collectives/operation.hpp"
#include "collectives/tensor_traits.hpp"

namespace hvd {

namespace {

/// The elements of one tensor in this rank's share of all elements.
struct Segment {
  std::int64_t tensor = 0;
  std::int64_t begin = 0;  ///< its offset in the share
  std::int64_t count = 0;

  [[nodiscard]] torch::Tensor of(const torch::Tensor& share) const {
    return share.narrow(0, begin, count);
  }
};

std::vector<Segment> segments_of(const Tensors& tensors, std::int64_t first, std::int64_t count) {
  std::vector<Segment> segments;
  std::int64_t at = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::int64_t begin = std::max(at, first);
    at += tensors[i].numel();
    const std::int64_t end = std::min(at, first + count);
    if (begin < end) segments.push_back({static_cast<std::int64_t>(i), begin - first, end - begin});
  }
  return segments;
}

torch::ScalarType common_type(const Tensors& tensors, const std::string& name) {
  const auto refuse = [&name](const std::string& why) {
    throw Error(Errc::invalid_argument, fmt::format("adasum '{}': {}", name, why));
  };
  torch::ScalarType type = torch::kFloat32;
  for (const torch::Tensor& tensor : tensors) {
    if (!tensor.defined()) refuse("a tensor is undefined");
    if (tensor.layout() != torch::kStrided) refuse("a tensor is not dense");
    if (!tensor.is_floating_point() && !tensor.is_complex()) {
      refuse(fmt::format("a tensor is of dtype {}, not floating or complex",
                         c10::toString(tensor.scalar_type())));
    }
    if (tensor.device() != tensors.front().device()) refuse("tensors are on different devices");
    if (c10::toRealValueType(tensor.scalar_type()) == torch::kFloat64) type = torch::kFloat64;
  }
  return type;
}

/// Returns a·b, a·a and b·b of the elements of each tensor in this share, as [tensors, 3] in f64.
torch::Tensor products(const torch::Tensor& a, const torch::Tensor& b,
                       const std::vector<Segment>& segments, std::size_t tensors) {
  const auto count = static_cast<std::int64_t>(tensors);
  torch::Tensor all = torch::zeros({count, 3}, a.options().dtype(torch::kFloat64));
  for (const Segment& segment : segments) {
    const torch::Tensor x = segment.of(a).to(torch::kFloat64);
    const torch::Tensor y = segment.of(b).to(torch::kFloat64);
    all[segment.tensor].copy_(torch::stack({x.dot(y), x.dot(x), y.dot(y)}));
  }
  return all;
}

/// Returns the factors of a and b for each tensor, as [tensors, 2]. A gradient of zeros has no
/// direction, and gets the factor 1.
torch::Tensor coefficients(const torch::Tensor& sums) {
  const torch::Tensor dot = sums.narrow(1, 0, 1);
  const torch::Tensor norms = sums.narrow(1, 1, 2);
  return torch::where(norms > 0, 1 - dot / (2 * norms), torch::ones_like(norms));
}

torch::Tensor combine(const torch::Tensor& a, const torch::Tensor& b, const torch::Tensor& factors,
                      const std::vector<Segment>& segments) {
  torch::Tensor result = torch::zeros_like(a);
  for (const Segment& segment : segments) {
    const torch::Tensor factor = factors[segment.tensor].to(a.scalar_type());
    segment.of(result).copy_(factor[0] * segment.of(a) + factor[1] * segment.of(b));
  }
  return result;
}

CollectiveOptions part_of(const CollectiveOptions& options, const std::string& what) {
  return {.name = options.name.empty() ? "" : fmt::format("{}/{}", options.name, what),
          .process_set = options.process_set,
          .context = options.context};
}

/// Combines the ranks' tensors along a binary tree, for this rank's share of the elements. At each
/// level an allreduce adds up the products of the shares, which gives those of whole tensors.
torch::Tensor combine_all(Tensors parts, const std::vector<Segment>& segments, std::size_t tensors,
                          const CollectiveOptions& options) {
  for (int level = 0; parts.size() > 1; ++level) {
    const std::size_t pairs = parts.size() / 2;
    Tensors of_pairs;
    for (std::size_t pair = 0; pair < pairs; ++pair) {
      of_pairs.push_back(products(parts[2 * pair], parts[2 * pair + 1], segments, tensors));
    }
    const CollectiveOptions named = part_of(options, fmt::format("level {}", level));
    const torch::Tensor sums = allreduce(torch::stack(of_pairs), {.name = named.name,
                                                                  .op = ReduceOp::sum,
                                                                  .process_set = named.process_set,
                                                                  .context = named.context});
    Tensors next;
    for (std::size_t pair = 0; pair < pairs; ++pair) {
      next.push_back(combine(parts[2 * pair], parts[2 * pair + 1],
                             coefficients(sums[static_cast<std::int64_t>(pair)]), segments));
    }
    if (parts.size() % 2 == 1) next.push_back(parts.back());
    parts = std::move(next);
  }
  return parts.front();
}

}  // namespace

void adasum_(const Tensors& tensors, const CollectiveOptions& options) {
  Context& context = context_of(options);
  const torch::NoGradGuard no_grad;
  if (tensors.empty()) return;
  const torch::ScalarType type = common_type(tensors, options.name);
  const auto [index, size] = detail::rank_in_set(context, options.process_set);

  Tensors flat;  // a complex number is a vector of two reals, so products and norms are real
  for (const torch::Tensor& tensor : tensors)
    flat.push_back(detail::reals_of(tensor.detach()).reshape({-1}).to(type));
  torch::Tensor mine = torch::cat(flat);
  const std::int64_t total = mine.size(0);
  const std::int64_t share = (total + size - 1) / size;
  mine = torch::constant_pad_nd(mine, {0, share * size - total}).view({size, share});

  const torch::Tensor received = alltoall(mine, {}, part_of(options, "parts")).output;
  const auto segments = segments_of(flat, index * share, share);
  const torch::Tensor part = combine_all(received.unbind(0), segments, tensors.size(), options);
  const torch::Tensor result = allgather(part, part_of(options, "result"));

  std::int64_t at = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    torch::Tensor values = result.narrow(0, at, flat[i].numel());
    at += flat[i].numel();
    if (tensors[i].is_complex()) {
      values = torch::complex(values.slice(0, 0, {}, 2), values.slice(0, 1, {}, 2));
    }
    tensors[i].copy_(values.view(tensors[i].sizes()));
  }
}

torch::Tensor adasum(const torch::Tensor& tensor, const CollectiveOptions& options) {
  static_cast<void>(common_type({tensor}, options.name));
  torch::Tensor result = tensor.detach().clone();
  adasum_({result}, options);
  return result;
}

}  // namespace hvd
