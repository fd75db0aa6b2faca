// Implements the compressors top_k and power_sgd, and the collectives that compressors use.
#include <cmath>
#include <limits>

#include <ATen/CPUGeneratorImpl.h>
#include <fmt/format.h>

#include <hvd/core/error.hpp>
#include <hvd/torch/collectives.hpp>
#include <hvd/torch/compression.hpp>

namespace hvd {

GradientExchange::GradientExchange(Context& context, std::string name, std::int32_t process_set)
    : context_(context), name_(std::move(name)), process_set_(process_set) {}

TensorWork GradientExchange::average(const torch::Tensor& tensor, std::string_view topic) const {
  return allreduce_async(tensor, {.name = fmt::format("{}/{}", name_, topic),
                                  .process_set = process_set_,
                                  .context = &context_});
}

TensorWork GradientExchange::gather(const torch::Tensor& tensor, std::string_view topic) const {
  return allgather_async(tensor, {.name = fmt::format("{}/{}", name_, topic),
                                  .process_set = process_set_,
                                  .context = &context_});
}

int GradientExchange::ranks() const {
  return static_cast<int>(context_.ranks_of(process_set_).size());
}

namespace {

class LargestElements final : public CompressedGradient {
 public:
  explicit LargestElements(std::int64_t count) : count_(count) {}

  void begin(const GradientExchange& exchange, const torch::Tensor& gradient) override {
    const torch::Tensor flat = gradient.reshape(-1);
    rest_ = rest_.defined() ? rest_ + flat : flat.clone();
    const torch::Tensor indices = std::get<1>(rest_.abs().topk(count_));
    const torch::Tensor values = rest_.index_select(0, indices);
    rest_.index_fill_(0, indices, 0);
    // Infinity and NaN count as the largest elements, so all ranks receive them. The error feedback
    // must not keep them, because every later gradient would get them too.
    rest_.nan_to_num_(0, 0, 0);
    indices_ = exchange.gather(indices, "indices");
    values_ = exchange.gather(values, "values");
  }

  bool go_on(const GradientExchange& exchange, const torch::Tensor& gradient) override {
    const torch::Tensor indices = indices_.wait();
    const torch::Tensor values = values_.wait();
    torch::Tensor sum = torch::zeros({gradient.numel()}, gradient.options());
    // All ranks add the parts in rank order. The indices within a part are distinct, so each
    // element has the same order of additions, and the same bits, on all ranks.
    const auto ranks = exchange.ranks();
    for (int rank = 0; rank < ranks; ++rank) {
      sum.index_add_(0, indices.narrow(0, rank * count_, count_),
                     values.narrow(0, rank * count_, count_));
    }
    gradient.copy_(sum.div_(ranks).view_as(gradient));
    return true;
  }

 private:
  const std::int64_t count_;
  torch::Tensor rest_;  ///< the part of the gradients that has not been sent yet
  TensorWork indices_;
  TensorWork values_;
};

class TopK final : public GradientCompressor {
 public:
  TopK(double ratio, std::int64_t min_count) : ratio_(ratio), min_count_(min_count) {
    if (!(ratio > 0 && ratio <= 1)) {
      throw Error(Errc::invalid_argument, fmt::format("top_k: the ratio is {}", ratio));
    }
  }

  std::unique_ptr<CompressedGradient> make(const torch::Tensor& parameter) const override {
    const std::int64_t count = parameter.numel();
    if (parameter.is_complex() || count == 0 || count < min_count_) return nullptr;
    const auto kept = static_cast<std::int64_t>(std::ceil(ratio_ * static_cast<double>(count)));
    return std::make_unique<LargestElements>(kept);
  }
  std::string description() const override {
    return fmt::format("top_k({}, {})", ratio_, min_count_);
  }

 private:
  double ratio_;
  std::int64_t min_count_;
};

/// Makes the columns orthonormal by modified Gram-Schmidt, which is deterministic and fast enough
/// for a few columns. A column that depends linearly on earlier ones becomes zero rather than
/// noise.
void orthonormalize(torch::Tensor& matrix) {
  for (std::int64_t i = 0; i < matrix.size(1); ++i) {
    torch::Tensor column = matrix.select(1, i);
    const torch::Tensor before = column.norm();
    for (std::int64_t j = 0; j < i; ++j) {
      const torch::Tensor other = matrix.select(1, j);
      column -= other * other.dot(column);
    }
    const torch::Tensor length = column.norm();
    const double smallest = 1e-5 * before.item<double>();
    if (length.item<double>() > smallest) {
      column /= length;
    } else {
      column.zero_();
    }
  }
}

bool all_finite(const torch::Tensor& values) { return torch::isfinite(values).all().item<bool>(); }

/// Approximates the gradient plus the error of the last step by P Qᵀ, with orthonormal P, and keeps
/// the new error.
class LowRank final : public CompressedGradient {
 public:
  LowRank(const torch::Tensor& parameter, std::int64_t rank, std::uint64_t seed)
      : rows_(parameter.size(0)),
        columns_(parameter.numel() / rows_),
        rank_(rank),
        seed_(seed),
        q_(first_q(parameter)) {}

  void begin(const GradientExchange& exchange, const torch::Tensor& gradient) override {
    const torch::Tensor matrix = gradient.reshape({rows_, columns_});
    rest_ = rest_.defined() ? rest_ + matrix : matrix.clone();
    work_ = exchange.average(rest_.mm(q_), "p");
    has_p_ = false;
  }

  bool go_on(const GradientExchange& exchange, const torch::Tensor& gradient) override {
    if (!has_p_) {
      p_ = work_.wait();
      if (!all_finite(p_)) return end_with_nan(gradient);
      orthonormalize(p_);
      work_ = exchange.average(rest_.t().mm(p_), "q");
      has_p_ = true;
      return false;
    }
    const torch::Tensor q = work_.wait();
    if (!all_finite(q)) return end_with_nan(gradient);
    const torch::Tensor result = p_.mm(q.t());
    rest_ -= result;
    gradient.copy_(result.view_as(gradient));
    // A gradient of zeros, or of lower rank, leaves columns of zeros in Q. They would stay zeros in
    // all later steps, so they start again as in the first step.
    const torch::Tensor is_used = q.any(0);
    q_ = is_used.all().item<bool>() ? q : torch::where(is_used, q, first_q(q));
    return true;
  }

 private:
  /// Returns the Q with which all ranks start. It is the same on all ranks, because its generator
  /// does not depend on the global one.
  torch::Tensor first_q(const torch::Tensor& like) const {
    auto generator = at::detail::createCPUGenerator(seed_);
    return torch::empty({columns_, rank_}, torch::kFloat32)
        .normal_(0, 1, generator)
        .to(like.options().requires_grad(false));
  }

  /// Ends the step when a rank's gradient is infinite or NaN, which all ranks see. The result is
  /// NaN, and the kept error becomes zero.
  bool end_with_nan(const torch::Tensor& gradient) {
    rest_.zero_();
    gradient.fill_(std::numeric_limits<double>::quiet_NaN());
    return true;
  }

  const std::int64_t rows_;
  const std::int64_t columns_;
  const std::int64_t rank_;
  const std::uint64_t seed_;
  torch::Tensor rest_;
  torch::Tensor p_;
  torch::Tensor q_;  ///< the Q of the last step, with which the next step starts
  TensorWork work_;
  bool has_p_ = false;
};

class PowerSgd final : public GradientCompressor {
 public:
  PowerSgd(int rank, std::uint64_t seed) : rank_(rank), seed_(seed) {
    if (rank < 1) throw Error(Errc::invalid_argument, fmt::format("power_sgd: rank {}", rank));
  }

  std::unique_ptr<CompressedGradient> make(const torch::Tensor& parameter) const override {
    if (parameter.is_complex() || parameter.dim() < 2 || parameter.numel() == 0) return nullptr;
    const std::int64_t rows = parameter.size(0);
    const std::int64_t columns = parameter.numel() / rows;
    if ((rows + columns) * rank_ >= rows * columns) return nullptr;
    return std::make_unique<LowRank>(parameter, rank_, seed_);
  }
  std::string description() const override {
    return fmt::format("power_sgd({}, {})", rank_, seed_);
  }

 private:
  int rank_;
  std::uint64_t seed_;
};

}  // namespace

std::shared_ptr<const GradientCompressor> top_k(double ratio, std::int64_t min_count) {
  return std::make_shared<TopK>(ratio, min_count);
}

std::shared_ptr<const GradientCompressor> power_sgd(int rank, std::uint64_t seed) {
  return std::make_shared<PowerSgd>(rank, seed);
}

}  // namespace hvd
