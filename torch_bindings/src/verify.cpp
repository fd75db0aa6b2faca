#include <hvd/hvd.hpp>
#include <hvd/torch/verify.hpp>

#include "compare_ranks.hpp"
#include "digest.hpp"
#include "tensor_traits.hpp"

namespace hvd {

namespace {

std::uint64_t digest_of(const std::string& name, const torch::Tensor& tensor) {
  Digest digest;
  digest.add(name);
  digest.add(static_cast<std::uint64_t>(dtype_of(tensor)));
  digest.add(static_cast<std::uint64_t>(tensor.dim()));
  for (const std::int64_t size : tensor.sizes()) digest.add(static_cast<std::uint64_t>(size));
  const torch::Tensor host = plain_alias(tensor).resolve_neg().cpu().contiguous();
  digest.add_elements({static_cast<const std::byte*>(host.const_data_ptr()), host.nbytes()},
                      host.element_size());
  return digest.value();
}

}  // namespace

Verification verify(Context& context, const NamedTensors& tensors) {
  const torch::NoGradGuard no_grad;
  std::vector<NamedDigest> mine;
  for (const auto& [name, tensor] : tensors.distinct().items()) {
    require_supported(tensor);
    mine.emplace_back(name, digest_of(name, tensor));
  }
  std::string difference = first_difference(context, mine, "verify");
  const bool identical = difference.empty();
  return {identical, std::move(difference)};
}

Verification verify(const NamedTensors& tensors) { return verify(context(), tensors); }

Verification verify(Context& context, const torch::nn::Module& module) {
  return verify(context, NamedTensors::of(module));
}

Verification verify(const torch::nn::Module& module) { return verify(context(), module); }

}  // namespace hvd
