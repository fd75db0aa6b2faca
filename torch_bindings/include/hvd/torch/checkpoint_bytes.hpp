// Checkpoints as bytes, for those who keep them elsewhere than in a local file.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>

#include <torch/serialize.h>

#include <hvd/core/wire.hpp>
#include <hvd/torch/checkpoint.hpp>

namespace hvd {

/// What `save_checkpoint_archive` writes: the archive, and a digest behind it.
[[nodiscard]] Bytes to_checkpoint(torch::serialize::OutputArchive& archive);
/// Throws Errc::protocol, naming `what`: damaged, or with code in it, which is never run.
[[nodiscard]] torch::serialize::InputArchive from_checkpoint(std::span<const std::byte> bytes,
                                                             const std::string& what);

using WriteCheckpoint = std::function<void(std::span<const std::byte>)>;

/// As `save_checkpoint_archive`; rank 0 hands the bytes to `write`, what that throws is thrown on
/// every rank. Collective.
void save_checkpoint_bytes(Context& context, const WriteCheckpoint& write, const SaveState& save,
                           const std::function<void()>& help = nullptr);
/// As `load_checkpoint_archive`; rank 0 has the bytes from `read`. `what` names them in errors.
void load_checkpoint_bytes(Context& context, const std::string& what,
                           const std::function<Bytes()>& read, const LoadState& load);

/// What `function` returns on rank 0, on every rank; what it throws there is thrown on every rank,
/// as an Error. Collective.
[[nodiscard]] std::string on_rank_0(Context& context, const std::function<std::string()>& function);

}  // namespace hvd
