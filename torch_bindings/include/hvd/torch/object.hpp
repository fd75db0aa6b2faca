// Broadcasts and gathers objects: strings, bytes and whatever torch::save takes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <torch/serialize.h>

#include <hvd/core/types.hpp>
#include <hvd/hvd.hpp>
#include <hvd/torch/load_in_place.hpp>

namespace hvd {

struct ObjectOptions {
  std::string name{};            ///< empty: the order of unnamed calls gives the name
  std::int32_t process_set = 0;  ///< `ProcessSet::id`
  /// Every rank throws Errc::invalid_argument for an object with more bytes, before memory is
  /// allocated for it. In a gather it limits all objects together. All ranks need the same value.
  std::int64_t max_bytes = std::int64_t{1} << 30;
  Context* context = nullptr;  ///< when null, the default one, `hvd::context()`
  /// Where the tensors of received archives are; by default where they were saved.
  std::optional<torch::Device> device{};
};

// All functions block, are collective among the ranks of the process set, and throw what the
// collectives throw. The ranks' objects may have different sizes.
//
// Nothing that is received is executed. A torch archive that contains code, as that of a
// TorchScript module does, is refused with Errc::protocol before LibTorch's reader sees it.
// `torch::save` writes only data: numbers, strings, lists and tensors.

/// Returns what rank `root` passed; the arguments of the other ranks are ignored.
[[nodiscard]] std::string broadcast_object(const std::string& object, int root = 0,
                                           const ObjectOptions& options = {});
[[nodiscard]] Bytes broadcast_object(const Bytes& object, int root = 0,
                                     const ObjectOptions& options = {});
[[nodiscard]] torch::serialize::InputArchive broadcast_object(
    torch::serialize::OutputArchive& object, int root = 0, const ObjectOptions& options = {});

/// Returns what every rank passed, in rank order.
[[nodiscard]] std::vector<std::string> allgather_object(const std::string& object,
                                                        const ObjectOptions& options = {});
[[nodiscard]] std::vector<Bytes> allgather_object(const Bytes& object,
                                                  const ObjectOptions& options = {});
[[nodiscard]] std::vector<torch::serialize::InputArchive> allgather_object(
    torch::serialize::OutputArchive& object, const ObjectOptions& options = {});

/// Overwrites `value` with that of rank `root`. It may be anything that `torch::save` and
/// `torch::load` take: a tensor, a module, an optimizer, a sampler. Tensors and modules stay on the
/// devices where they are on this rank, the state of LibTorch's optimizers goes to those of their
/// parameters, and other objects find their tensors on the CPU or on the options' device. When rank
/// `root` cannot save it, that rank throws the error of `torch::save`, and the other ranks throw
/// Errc::protocol.
template <class T>
void broadcast_object_(T& value, int root = 0, ObjectOptions options = {}) {
  using torch::operator<<;  // argument-dependent lookup does not find it for tensors
  if (!options.device) options.device = torch::kCPU;
  torch::serialize::OutputArchive saved;
  const bool sends = context_of(options).rank() == root;
  if (sends) {
    try {
      saved << value;
    } catch (...) {
      static_cast<void>(broadcast_object(Bytes(), root, options));  // the other ranks wait for it
      throw;
    }
  }
  torch::serialize::InputArchive received = broadcast_object(saved, root, options);
  if (!sends) detail::load_in_place(received, value);
}

}  // namespace hvd
