// Compressors as users write them.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include <hvd/torch.hpp>

namespace hvd::test {

/// A compressor without loss, which averages gradients. It leaves vectors to the library.
class Averages final : public GradientCompressor {
 public:
  class One final : public CompressedGradient {
   public:
    void begin(const GradientExchange& exchange, const torch::Tensor& gradient) override {
      average_ = exchange.average(gradient, "all of it");
    }
    bool go_on(const GradientExchange& /*exchange*/, const torch::Tensor& gradient) override {
      gradient.copy_(average_.wait());
      return true;
    }

   private:
    TensorWork average_;
  };

  [[nodiscard]] std::unique_ptr<CompressedGradient> make(
      const torch::Tensor& parameter) const override {
    if (parameter.dim() < 2) return nullptr;
    return std::make_unique<One>();
  }
  [[nodiscard]] std::string description() const override { return "averages"; }
};

/// Averages matrices, and throws on this rank when it has their averages while `fails` returns
/// true.
class Faulty final : public GradientCompressor {
 public:
  class One final : public CompressedGradient {
   public:
    explicit One(const std::function<bool()>& fails) : fails_(fails) {}
    void begin(const GradientExchange& exchange, const torch::Tensor& gradient) override {
      average_ = exchange.average(gradient, "all of it");
    }
    bool go_on(const GradientExchange& /*exchange*/, const torch::Tensor& gradient) override {
      gradient.copy_(average_.wait());
      if (fails_()) throw Error(Errc::internal, "the compressor has failed");
      return true;
    }

   private:
    const std::function<bool()>& fails_;
    TensorWork average_;
  };

  explicit Faulty(std::function<bool()> fails) : fails_(std::move(fails)) {}
  [[nodiscard]] std::unique_ptr<CompressedGradient> make(
      const torch::Tensor& parameter) const override {
    if (parameter.dim() < 2) return nullptr;
    return std::make_unique<One>(fails_);
  }
  [[nodiscard]] std::string description() const override { return "faulty"; }

 private:
  std::function<bool()> fails_;
};

/// The example of docs/reference/torch.md: signs and one length per rank and parameter, with error
/// feedback (Karimireddy et al. 2019, "Error feedback fixes SignSGD").
class SignsOfGradient final : public CompressedGradient {
 public:
  void begin(const GradientExchange& exchange, const torch::Tensor& gradient) override {
    left_ = left_.defined() ? left_ + gradient : gradient.clone();
    const torch::Tensor length = left_.abs().mean();
    const torch::Tensor signs = left_.sign();
    left_ -= signs * length;
    lengths_ = exchange.gather(length, "lengths");
    signs_ = exchange.gather(signs.to(torch::kInt8).reshape({1, -1}), "signs");
  }
  bool go_on(const GradientExchange& exchange, const torch::Tensor& gradient) override {
    const torch::Tensor lengths = lengths_.wait().view({exchange.ranks(), 1});
    gradient.copy_((signs_.wait() * lengths).mean(0).view_as(gradient));
    return true;
  }

 private:
  torch::Tensor left_;  // what was not sent so far
  TensorWork lengths_;
  TensorWork signs_;
};

class Signs final : public GradientCompressor {
 public:
  [[nodiscard]] std::unique_ptr<CompressedGradient> make(
      const torch::Tensor& /*parameter*/) const override {
    return std::make_unique<SignsOfGradient>();
  }
  [[nodiscard]] std::string description() const override { return "signs"; }
};

}  // namespace hvd::test
