// Names the files that `start_timeline` writes. docs/how-to/observability.md has their format.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace hvd {

/// Returns the file of a rank when a user names one file for all ranks: "a/trace.json" becomes
/// "a/trace.rank3.json"; "a/" becomes "a/timeline.rank3.json".
[[nodiscard]] std::string timeline_path(std::string_view name, int rank);

/// Returns the name for one generation of an elastic job: "a/trace.json" becomes
/// "a/trace.generation2.json".
[[nodiscard]] std::string timeline_of_generation(std::string_view name, std::uint32_t generation);

}  // namespace hvd
