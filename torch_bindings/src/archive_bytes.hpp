// Torch archives as bytes.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include <torch/serialize.h>

#include <hvd/core/wire.hpp>

namespace hvd {

[[nodiscard]] Bytes bytes_of(torch::serialize::OutputArchive& archive);

/// Throws Errc::protocol, naming `what`, when the archive has code in it or cannot be read.
/// LibTorch compiles the classes of an archive when it loads it, and runs their `__setstate__`;
/// without a function in them there is nothing to run.
[[nodiscard]] torch::serialize::InputArchive archive_of(std::span<const std::byte> bytes,
                                                        const std::string& what);

}  // namespace hvd
