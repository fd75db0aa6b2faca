#include "resnet50.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include <fmt/format.h>

namespace hvd::sim {
namespace {

class Layers {
 public:
  void add(std::string name, Shape shape) {
    Request& request = requests_.emplace_back();
    request.name = std::move(name);
    request.shape = std::move(shape);
    request.op = ReduceOp::average;
  }
  /// Weights without bias, and the two vectors of its normalisation.
  void convolution(const std::string& name, std::int64_t in, std::int64_t out, std::int64_t size) {
    add(name + ".conv.weight", {out, in, size, size});
    add(name + ".bn.weight", {out});
    add(name + ".bn.bias", {out});
  }
  std::vector<Request> backwards() {
    std::reverse(requests_.begin(), requests_.end());
    return std::move(requests_);
  }

 private:
  std::vector<Request> requests_;
};

}  // namespace

std::vector<Request> resnet50_gradients() {
  Layers layers;
  layers.convolution("stem", 3, 64, 7);
  std::int64_t in = 64;
  constexpr std::array blocks{3, 4, 6, 3};
  for (std::size_t stage = 0; stage < blocks.size(); ++stage) {
    const std::int64_t width = std::int64_t{64} << stage;
    for (int block = 0; block < blocks[stage]; ++block) {
      const std::string name = fmt::format("layer{}.{}", stage + 1, block);
      layers.convolution(name + ".a", in, width, 1);
      layers.convolution(name + ".b", width, width, 3);
      layers.convolution(name + ".c", width, 4 * width, 1);
      if (block == 0) layers.convolution(name + ".shortcut", in, 4 * width, 1);
      in = 4 * width;
    }
  }
  layers.add("fc.weight", {1000, in});
  layers.add("fc.bias", {1000});
  return layers.backwards();
}

}  // namespace hvd::sim
