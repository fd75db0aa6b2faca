#include <limits>

#include <ATen/CPUGeneratorImpl.h>
#include <fmt/format.h>

#include <hvd/core/error.hpp>
#include <hvd/torch/gradient_compressor.hpp>

namespace hvd {
namespace {

/// Modified Gram-Schmidt: deterministic, and the columns are few. A column that depends on those
/// before it becomes zero rather than noise.
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

/// gradient + left = P Qᵀ + what is left now, with P orthonormal.
class LowRank final : public CompressedGradient {
 public:
  LowRank(const torch::Tensor& parameter, std::int64_t rank, std::uint64_t seed)
      : rows_(parameter.size(0)), columns_(parameter.numel() / rows_) {
    // The same on all ranks, whatever their generators did so far.
    auto generator = at::detail::createCPUGenerator(seed);
    q_ = torch::empty({columns_, rank}, torch::kFloat32)
             .normal_(0, 1, generator)
             .to(parameter.options().requires_grad(false));
  }

  void begin(const GradientExchange& exchange, const torch::Tensor& gradient) override {
    const torch::Tensor matrix = gradient.reshape({rows_, columns_});
    left_ = left_.defined() ? left_ + matrix : matrix.clone();
    work_ = exchange.average(left_.mm(q_), "p");
    p_is_there_ = false;
  }

  bool go_on(const GradientExchange& exchange, const torch::Tensor& gradient) override {
    if (!p_is_there_) {
      p_ = work_.wait();
      if (!all_finite(p_)) return give_up(gradient);
      orthonormalize(p_);
      work_ = exchange.average(left_.t().mm(p_), "q");
      p_is_there_ = true;
      return false;
    }
    const torch::Tensor q = work_.wait();
    if (!all_finite(q)) return give_up(gradient);
    q_ = q;
    const torch::Tensor result = p_.mm(q_.t());
    left_ -= result;
    gradient.copy_(result.view_as(gradient));
    return true;
  }

 private:
  /// Some rank's gradient is infinite or NaN, as all see: so is the result, and nothing of it
  /// stays.
  bool give_up(const torch::Tensor& gradient) {
    left_.zero_();
    gradient.fill_(std::numeric_limits<double>::quiet_NaN());
    return true;
  }

  const std::int64_t rows_;
  const std::int64_t columns_;
  torch::Tensor left_;
  torch::Tensor p_;
  torch::Tensor q_;  ///< of the last step: where the next one begins
  TensorWork work_;
  bool p_is_there_ = false;
};

class PowerSgd final : public GradientCompressor {
 public:
  PowerSgd(int rank, std::uint64_t seed) : rank_(rank), seed_(seed) {
    if (rank < 1) throw Error(Errc::invalid_argument, fmt::format("power_sgd: rank {}", rank));
  }

  std::unique_ptr<CompressedGradient> make(const torch::Tensor& parameter) const override {
    if (parameter.dim() < 2 || parameter.numel() == 0) return nullptr;
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

std::shared_ptr<const GradientCompressor> power_sgd(int rank, std::uint64_t seed) {
  return std::make_shared<PowerSgd>(rank, seed);
}

}  // namespace hvd
