// Turns checkpoints into bytes, for programs that keep them elsewhere than in a local file.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include <torch/serialize.h>

#include <hvd/core/internal/wire.hpp>
#include <hvd/torch/checkpoint.hpp>

namespace hvd {

/// Returns what `save_checkpoint_archive` writes: the archive, followed by a digest.
[[nodiscard]] Bytes to_checkpoint(torch::serialize::OutputArchive& archive);
/// Returns the archive that `to_checkpoint` made these bytes of. Throws Errc::protocol, naming
/// `what`, when the bytes are damaged or contain program code, which is never run.
[[nodiscard]] torch::serialize::InputArchive from_checkpoint(std::span<const std::byte> bytes,
                                                             const std::string& what);

using WriteCheckpoint = std::function<void(std::span<const std::byte>)>;

/// Does what `save_checkpoint_archive` does, but rank 0 hands the bytes to `write`. Every rank
/// throws what `write` throws on rank 0. Collective.
void save_checkpoint_bytes(const WriteCheckpoint& write, const SaveState& save,
                           const std::function<void()>& help = nullptr,
                           Context& context = hvd::context());
/// Does what `load_checkpoint_archive` does, but rank 0 gets the bytes from `read`. Errors call the
/// bytes `what`. Collective.
void load_checkpoint_bytes(const std::string& what, const std::function<Bytes()>& read,
                           const LoadState& load, Context& context = hvd::context(),
                           std::optional<torch::Device> device = std::nullopt);

}  // namespace hvd
