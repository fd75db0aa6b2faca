// Finding the first thing in which ranks differ.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <hvd/core/context.hpp>

namespace hvd {

/// What a rank holds: a name for messages and a digest.
using NamedDigest = std::pair<std::string, std::uint64_t>;

/// Empty when the digests are equal on all ranks of the process set, in order and number; else the
/// first difference, in words. Collective; `topic` names the collectives.
[[nodiscard]] std::string first_difference(Context& context, const std::vector<NamedDigest>& mine,
                                           const std::string& topic, std::int32_t process_set = 0);

}  // namespace hvd
