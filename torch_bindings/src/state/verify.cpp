#include <fmt/format.h>

#include <hvd/hvd.hpp>
#include <hvd/torch/verify.hpp>
#include <hvd/torch/wrapped_optimizer.hpp>

#include "collectives/tensor_traits.hpp"
#include "state/agreement.hpp"
#include "state/digest.hpp"
#include "state/optimizer_coder.hpp"
#include "state/optimizer_fields.hpp"

namespace hvd {

using namespace detail;

namespace {

constexpr std::string_view kBuffer = "buffer ";  ///< precedes the names of buffers

std::uint64_t digest_of(const std::string& name, const torch::Tensor& tensor) {
  Digest digest;
  digest.add(name);
  digest.add_kind(tensor);
  digest.add_values(tensor);
  return digest.value();
}

/// Returns the digest of what a `FieldWriter` has written.
std::uint64_t digest_of(FieldWriter writer) {
  Digest digest;
  const Bytes bytes = writer.take_bytes();
  digest.add_elements(bytes, 1);
  for (const torch::Tensor& tensor : writer.take_tensors()) digest.add(digest_of("", tensor));
  return digest.value();
}

template <class Kind>
std::vector<NamedDigest> digests_of(torch::optim::Optimizer& optimizer) {
  std::vector<NamedDigest> digests;
  std::size_t group_number = 0;
  for (auto& group : optimizer.param_groups()) {
    FieldWriter options;
    visit(options, static_cast<typename Kind::Options&>(group.options()));
    digests.emplace_back(fmt::format("options of group {}", group_number), digest_of(options));
    std::size_t index = 0;
    for (const torch::Tensor& parameter : group.params()) {
      const auto entry = optimizer.state().find(parameter.unsafeGetTensorImpl());
      FieldWriter state;
      state(entry != optimizer.state().end());
      if (entry != optimizer.state().end()) {
        visit(state, static_cast<typename Kind::State&>(*entry->second));
      }
      digests.emplace_back(fmt::format("state of parameter {} of group {}", index, group_number),
                           digest_of(std::move(state)));
      ++index;
    }
    ++group_number;
  }
  return digests;
}

Verification compare(Context& context, const std::vector<NamedDigest>& mine) {
  std::string difference = first_difference(context, mine, "verify");
  const bool identical = difference.empty();
  return {identical, std::move(difference)};
}

Verification verify_module(const ModuleTensors& module, Context& context) {
  std::vector<NamedTensors::Item> items = module.parameters().items();
  for (const auto& [name, buffer] : module.buffers().items()) {
    items.emplace_back(std::string(kBuffer) + name, buffer);
  }
  Verification result = verify(NamedTensors(std::move(items)), context);
  if (result.first_difference.starts_with(kBuffer)) {
    result.first_difference +=
        ". Each rank computes its buffers from its own batches: hvd::broadcast_parameters(model) "
        "makes them equal, and hvd::SyncBatchNorm keeps those of batch normalization equal";
  }
  return result;
}

}  // namespace

Verification verify(const NamedTensors& tensors, Context& context) {
  const torch::NoGradGuard no_grad;
  std::vector<NamedDigest> mine;
  for (const auto& [name, tensor] : tensors.distinct().items()) {
    require_supported(tensor);
    mine.emplace_back(name, digest_of(name, tensor));
  }
  return compare(context, mine);
}

Verification verify(const torch::nn::Module& module, Context& context) {
  return verify_module(module, context);
}

Verification verify(const torch::jit::Module& module, Context& context) {
  return verify_module(module, context);
}

Verification verify(torch::optim::Optimizer& given, Context& context) {
  const torch::NoGradGuard no_grad;
  torch::optim::Optimizer& optimizer = unwrapped(given);
  const std::int64_t code = optimizer_code(optimizer);
  if (code < 0) throw Error(Errc::unsupported, "verify: an optimizer of its own type");
  return compare(context, with_optimizer_kind(code, [&](auto kind) {
                   return digests_of<decltype(kind)>(optimizer);
                 }));
}

}  // namespace hvd
