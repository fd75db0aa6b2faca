#include <cmath>

#include <fmt/format.h>

#include <hvd/core/error.hpp>
#include <hvd/torch/gradient_compressor.hpp>

namespace hvd {
namespace {

class LargestElements final : public CompressedGradient {
 public:
  explicit LargestElements(std::int64_t count) : count_(count) {}

  void begin(const GradientExchange& exchange, const torch::Tensor& gradient) override {
    const torch::Tensor flat = gradient.reshape(-1);
    left_ = left_.defined() ? left_ + flat : flat.clone();
    const torch::Tensor indices = std::get<1>(left_.abs().topk(count_));
    const torch::Tensor values = left_.index_select(0, indices);
    left_.index_fill_(0, indices, 0);
    // Infinity and NaN count as the largest, so all ranks see them; they are not to stay.
    left_.nan_to_num_(0, 0, 0);
    indices_ = exchange.gather(indices, "indices");
    values_ = exchange.gather(values, "values");
  }

  bool go_on(const GradientExchange& exchange, const torch::Tensor& gradient) override {
    const torch::Tensor indices = indices_.wait();
    const torch::Tensor values = values_.wait();
    torch::Tensor sum = torch::zeros({gradient.numel()}, gradient.options());
    // Rank by rank, whose own indices differ: so the order of additions is the same everywhere.
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
  torch::Tensor left_;  ///< what was not sent so far
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
    if (count == 0 || count < min_count_) return nullptr;
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

}  // namespace

std::shared_ptr<const GradientCompressor> top_k(double ratio, std::int64_t min_count) {
  return std::make_shared<TopK>(ratio, min_count);
}

}  // namespace hvd
