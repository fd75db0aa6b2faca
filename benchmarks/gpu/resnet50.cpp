#include "resnet50.hpp"

#include <array>

namespace hvd {

std::vector<std::int64_t> resnet50_counts() {
  std::vector<std::int64_t> counts;
  const auto convolution = [&](std::int64_t from, std::int64_t to, std::int64_t width) {
    counts.push_back(from * to * width * width);
    counts.insert(counts.end(), 2, to);  // weight and bias of the normalisation
  };
  struct Stage {
    int blocks;
    std::int64_t channels;
  };
  constexpr std::array<Stage, 4> kStages{{{3, 64}, {4, 128}, {6, 256}, {3, 512}}};

  convolution(3, 64, 7);
  std::int64_t input = 64;
  for (const Stage& stage : kStages) {
    const std::int64_t output = 4 * stage.channels;
    for (int block = 0; block < stage.blocks; ++block) {
      convolution(input, stage.channels, 1);
      convolution(stage.channels, stage.channels, 3);
      convolution(stage.channels, output, 1);
      if (block == 0) convolution(input, output, 1);
      input = output;
    }
  }
  counts.push_back(input * 1'000);
  counts.push_back(1'000);
  return counts;
}

}  // namespace hvd
