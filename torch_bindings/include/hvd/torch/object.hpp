// Anything that can be made into bytes, on every rank.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <torch/serialize.h>

#include <hvd/core/wire.hpp>
#include <hvd/hvd.hpp>

namespace hvd {

struct ObjectOptions {
  std::string name{};            ///< empty: from the order of unnamed calls
  std::int32_t process_set = 0;  ///< `ProcessSet::id`
  /// More than this (of all ranks together, for a gather) is Errc::invalid_argument on every rank:
  /// memory is taken only for what was agreed to. The same on all ranks.
  std::int64_t max_bytes = std::int64_t{1} << 30;
};

// Every function also exists without the first argument, for the default context. Collective among
// the ranks of the process set; blocking; throws as the collectives do. Ranks may hold objects of
// any size.
//
// Nothing that is received is executed. Bytes are bytes. A torch archive is refused with
// Errc::protocol before LibTorch's reader sees it when there is code in it, as in a saved
// TorchScript module: data only (numbers, strings, lists, tensors) is what `torch::save` writes.

/// What rank `root` passed; what the others pass is not looked at.
[[nodiscard]] std::string broadcast_object(Context& context, const std::string& object,
                                           int root = 0, const ObjectOptions& options = {});
[[nodiscard]] std::string broadcast_object(const std::string& object, int root = 0,
                                           const ObjectOptions& options = {});
[[nodiscard]] Bytes broadcast_object(Context& context, const Bytes& object, int root = 0,
                                     const ObjectOptions& options = {});
[[nodiscard]] Bytes broadcast_object(const Bytes& object, int root = 0,
                                     const ObjectOptions& options = {});
[[nodiscard]] torch::serialize::InputArchive broadcast_object(
    Context& context, torch::serialize::OutputArchive& object, int root = 0,
    const ObjectOptions& options = {});
[[nodiscard]] torch::serialize::InputArchive broadcast_object(
    torch::serialize::OutputArchive& object, int root = 0, const ObjectOptions& options = {});

/// What every rank passed, in rank order.
[[nodiscard]] std::vector<std::string> allgather_object(Context& context, const std::string& object,
                                                        const ObjectOptions& options = {});
[[nodiscard]] std::vector<std::string> allgather_object(const std::string& object,
                                                        const ObjectOptions& options = {});
[[nodiscard]] std::vector<Bytes> allgather_object(Context& context, const Bytes& object,
                                                  const ObjectOptions& options = {});
[[nodiscard]] std::vector<Bytes> allgather_object(const Bytes& object,
                                                  const ObjectOptions& options = {});
[[nodiscard]] std::vector<torch::serialize::InputArchive> allgather_object(
    Context& context, torch::serialize::OutputArchive& object, const ObjectOptions& options = {});
[[nodiscard]] std::vector<torch::serialize::InputArchive> allgather_object(
    torch::serialize::OutputArchive& object, const ObjectOptions& options = {});

/// In place: `value` becomes what rank `root` has. Anything that `torch::save` and `torch::load`
/// take: a tensor, a module, an optimizer, a sampler. When `root` cannot save it, it throws that
/// error and the others Errc::protocol.
template <class T>
void broadcast_object_(Context& context, T& value, int root = 0,
                       const ObjectOptions& options = {}) {
  using torch::operator<<;  // of tensors: not found by their types
  using torch::operator>>;
  torch::serialize::OutputArchive saved;
  if (context.rank() == root) {
    try {
      saved << value;
    } catch (...) {
      static_cast<void>(broadcast_object(context, Bytes(), root, options));  // frees the others
      throw;
    }
  }
  torch::serialize::InputArchive received = broadcast_object(context, saved, root, options);
  if (context.rank() != root) received >> value;
}
template <class T>
void broadcast_object_(T& value, int root = 0, const ObjectOptions& options = {}) {
  broadcast_object_(context(), value, root, options);
}

}  // namespace hvd
