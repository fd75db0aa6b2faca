#include <cstring>

#include <fmt/format.h>

#include <hvd/core/internal/text.hpp>
#include <hvd/hvd.hpp>
#include <hvd/torch/collectives.hpp>
#include <hvd/torch/object.hpp>

#include "collectives/archive_bytes.hpp"

namespace hvd {

using namespace detail;

namespace {

using View = std::span<const std::byte>;

torch::Tensor tensor_of(View bytes) {
  torch::Tensor tensor = torch::empty({std::ssize(bytes)}, torch::kUInt8);
  if (!bytes.empty()) std::memcpy(tensor.data_ptr(), bytes.data(), bytes.size());
  return tensor;
}

View view_of(const torch::Tensor& bytes) {
  return {static_cast<const std::byte*>(bytes.const_data_ptr()),
          static_cast<std::size_t>(bytes.numel())};
}

CollectiveOptions part(const ObjectOptions& options, const char* what) {
  return {.name = options.name.empty() ? "" : fmt::format("{}/{}", options.name, what),
          .process_set = options.process_set,
          .context = options.context};
}

void require_allowed(std::int64_t bytes, const char* operation, const ObjectOptions& options) {
  if (bytes <= options.max_bytes) return;
  throw Error(Errc::invalid_argument,
              fmt::format("{} '{}': {} bytes, and max_bytes is {}", operation, options.name, bytes,
                          options.max_bytes));
}

torch::Tensor broadcast_tensor_of(View mine, int root, const ObjectOptions& options) {
  const torch::NoGradGuard no_grad;
  const torch::Tensor size = torch::full({1}, std::ssize(mine), torch::kInt64);
  broadcast_(size, root, part(options, "size"));
  const auto bytes = size.item<std::int64_t>();
  require_allowed(bytes, "broadcast_object", options);
  torch::Tensor data =
      context_of(options).rank() == root ? tensor_of(mine) : torch::empty({bytes}, torch::kUInt8);
  return broadcast_(data, root, part(options, "bytes"));
}

/// Returns one tensor for each rank; all are views of one tensor.
std::vector<torch::Tensor> gather_bytes(View mine, const ObjectOptions& options) {
  const torch::NoGradGuard no_grad;
  const torch::Tensor sizes =
      allgather(torch::full({1}, std::ssize(mine), torch::kInt64), part(options, "size"));
  require_allowed(sizes.sum().item<std::int64_t>(), "allgather_object", options);
  const torch::Tensor data = allgather(tensor_of(mine), part(options, "bytes"));
  const auto* const first = sizes.const_data_ptr<std::int64_t>();
  return data.split_with_sizes({first, static_cast<std::size_t>(sizes.numel())});
}

}  // namespace

std::string broadcast_object(const std::string& object, int root, const ObjectOptions& options) {
  return std::string(text_of(view_of(broadcast_tensor_of(bytes_of(object), root, options))));
}

Bytes broadcast_object(const Bytes& object, int root, const ObjectOptions& options) {
  const torch::Tensor received = broadcast_tensor_of(object, root, options);
  const View bytes = view_of(received);
  return {bytes.begin(), bytes.end()};
}

torch::serialize::InputArchive broadcast_object(torch::serialize::OutputArchive& object, int root,
                                                const ObjectOptions& options) {
  const Bytes mine = context_of(options).rank() == root ? bytes_of(object) : Bytes();
  const torch::Tensor received = broadcast_tensor_of(mine, root, options);
  return archive_of(view_of(received), fmt::format("broadcast_object '{}'", options.name),
                    options.device);
}

std::vector<std::string> allgather_object(const std::string& object, const ObjectOptions& options) {
  std::vector<std::string> objects;
  for (const torch::Tensor& each : gather_bytes(bytes_of(object), options)) {
    objects.emplace_back(text_of(view_of(each)));
  }
  return objects;
}

std::vector<Bytes> allgather_object(const Bytes& object, const ObjectOptions& options) {
  std::vector<Bytes> objects;
  for (const torch::Tensor& each : gather_bytes(object, options)) {
    const View bytes = view_of(each);
    objects.emplace_back(bytes.begin(), bytes.end());
  }
  return objects;
}

std::vector<torch::serialize::InputArchive> allgather_object(
    torch::serialize::OutputArchive& object, const ObjectOptions& options) {
  std::vector<torch::serialize::InputArchive> archives;
  for (const torch::Tensor& each : gather_bytes(bytes_of(object), options)) {
    archives.push_back(archive_of(
        view_of(each),
        fmt::format("allgather_object '{}' of the {}th rank", options.name, archives.size()),
        options.device));
  }
  return archives;
}

}  // namespace hvd
