// Turns torch archives into bytes and back.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include <torch/serialize.h>

#include <hvd/core/internal/wire.hpp>

namespace hvd::detail {

[[nodiscard]] Bytes bytes_of(torch::serialize::OutputArchive& archive);

/// Throws Errc::protocol, naming `what`, when the archive contains code or cannot be read. When
/// LibTorch loads an archive, it compiles the classes in it and runs their `__setstate__`.
/// Therefore an archive with any function is refused. The tensors are on `device`, or by default
/// where they were saved.
[[nodiscard]] torch::serialize::InputArchive archive_of(
    std::span<const std::byte> bytes, const std::string& what,
    std::optional<torch::Device> device = std::nullopt);

}  // namespace hvd::detail
