#include <fmt/format.h>

#include <hvd/torch/collectives.hpp>
#include <hvd/torch/gradient_compressor.hpp>

namespace hvd {

GradientExchange::GradientExchange(Context& context, std::string name, std::int32_t process_set)
    : context_(context), name_(std::move(name)), process_set_(process_set) {}

TensorWork GradientExchange::average(const torch::Tensor& tensor, std::string_view topic) const {
  return allreduce_async(context_, tensor,
                         {.name = fmt::format("{}/{}", name_, topic), .process_set = process_set_});
}

TensorWork GradientExchange::gather(const torch::Tensor& tensor, std::string_view topic) const {
  return allgather_async(context_, tensor,
                         {.name = fmt::format("{}/{}", name_, topic), .process_set = process_set_});
}

int GradientExchange::ranks() const {
  return static_cast<int>(context_.ranks_of(process_set_).size());
}

}  // namespace hvd
