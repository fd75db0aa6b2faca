// Defines residual networks (He, Zhang, Ren & Sun 2015, "Deep residual learning for image
// recognition"), with the stride in the 3x3 convolution of a bottleneck.
#pragma once

#include <array>
#include <cstdint>

#include <torch/nn.h>

namespace resnet {

inline torch::nn::Conv2d conv(std::int64_t in, std::int64_t out, std::int64_t kernel,
                              std::int64_t stride) {
  return torch::nn::Conv2d(
      torch::nn::Conv2dOptions(in, out, kernel).stride(stride).padding(kernel / 2).bias(false));
}

/// Returns the shortcut for a block that changes the shape, and an empty module otherwise.
inline torch::nn::Sequential shortcut(std::int64_t in, std::int64_t out, std::int64_t stride) {
  torch::nn::Sequential layers;
  if (stride != 1 || in != out) {
    layers->push_back(conv(in, out, 1, stride));
    layers->push_back(torch::nn::BatchNorm2d(out));
  }
  return layers;
}

/// Two 3x3 convolutions, for ResNet-18 and -34.
class BasicBlockImpl : public torch::nn::Module {
 public:
  static constexpr std::int64_t kExpansion = 1;

  BasicBlockImpl(std::int64_t in, std::int64_t width, std::int64_t stride)
      : body_(register_module(
            "body", torch::nn::Sequential(conv(in, width, 3, stride), torch::nn::BatchNorm2d(width),
                                          torch::nn::ReLU(true), conv(width, width, 3, 1),
                                          torch::nn::BatchNorm2d(width)))),
        shortcut_(register_module("shortcut", shortcut(in, width, stride))) {}

  torch::Tensor forward(const torch::Tensor& x) {
    return torch::relu(body_->forward(x) + (shortcut_->is_empty() ? x : shortcut_->forward(x)));
  }

 private:
  torch::nn::Sequential body_;
  torch::nn::Sequential shortcut_;
};
TORCH_MODULE(BasicBlock);

/// Convolutions of 1x1, 3x3 and 1x1, for ResNet-50 and deeper.
class BottleneckImpl : public torch::nn::Module {
 public:
  static constexpr std::int64_t kExpansion = 4;

  BottleneckImpl(std::int64_t in, std::int64_t width, std::int64_t stride)
      : body_(register_module(
            "body", torch::nn::Sequential(conv(in, width, 1, 1), torch::nn::BatchNorm2d(width),
                                          torch::nn::ReLU(true), conv(width, width, 3, stride),
                                          torch::nn::BatchNorm2d(width), torch::nn::ReLU(true),
                                          conv(width, kExpansion * width, 1, 1),
                                          torch::nn::BatchNorm2d(kExpansion * width)))),
        shortcut_(register_module("shortcut", shortcut(in, kExpansion * width, stride))) {}

  torch::Tensor forward(const torch::Tensor& x) {
    return torch::relu(body_->forward(x) + (shortcut_->is_empty() ? x : shortcut_->forward(x)));
  }

 private:
  torch::nn::Sequential body_;
  torch::nn::Sequential shortcut_;
};
TORCH_MODULE(Bottleneck);

/// Maps images [B, 3, H, W] to logits [B, classes]. H and W are at least 32.
template <class Block>
class ResNetImpl : public torch::nn::Module {
 public:
  /// `blocks` holds the number of blocks of each stage. The stages have 64, 128, 256 and 512
  /// channels.
  ResNetImpl(const std::array<int, 4>& blocks, std::int64_t classes) {
    layers_->push_back(conv(3, kStem, 7, 2));
    layers_->push_back(torch::nn::BatchNorm2d(kStem));
    layers_->push_back(torch::nn::ReLU(true));
    layers_->push_back(torch::nn::MaxPool2d(torch::nn::MaxPool2dOptions(3).stride(2).padding(1)));
    std::int64_t in = kStem;
    for (std::size_t stage = 0; stage < blocks.size(); ++stage) {
      const std::int64_t width = kStem << stage;
      for (int i = 0; i < blocks[stage]; ++i) {
        layers_->push_back(Block(in, width, stage > 0 && i == 0 ? 2 : 1));
        in = Block::ContainedType::kExpansion * width;
      }
    }
    layers_->push_back(torch::nn::AdaptiveAvgPool2d(1));
    layers_->push_back(torch::nn::Flatten());
    layers_->push_back(torch::nn::Linear(in, classes));
    register_module("layers", layers_);
  }

  torch::Tensor forward(const torch::Tensor& x) { return layers_->forward(x); }

 private:
  static constexpr std::int64_t kStem = 64;
  torch::nn::Sequential layers_;
};

using ResNet18Impl = ResNetImpl<BasicBlock>;
using ResNet50Impl = ResNetImpl<Bottleneck>;

inline std::shared_ptr<ResNet18Impl> resnet18(std::int64_t classes) {
  return std::make_shared<ResNet18Impl>(std::array{2, 2, 2, 2}, classes);
}
inline std::shared_ptr<ResNet50Impl> resnet50(std::int64_t classes) {
  return std::make_shared<ResNet50Impl>(std::array{3, 4, 6, 3}, classes);
}

}  // namespace resnet
