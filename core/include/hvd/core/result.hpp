// What a program hands back to whoever started it. docs/spark.md.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace hvd {

/// The largest result, in bytes: it becomes one value in another process's memory.
inline constexpr std::size_t kMaxResult = std::size_t{512} << 20;

/// Hands `bytes` to whoever started this rank and asked for a result (`HVD_RESULT_FD`), who gets
/// them when the job has ended well; of several the last one counts. False, and nothing happens,
/// when nobody asked: `HvdDistributor` asks rank 0 only. Needs no `init`. Any thread, not
/// concurrently. Throws Errc::invalid_argument above `kMaxResult` and when `HVD_RESULT_FD` is no
/// such descriptor, Errc::resource when there is no memory for it; the earlier result is gone then.
bool set_result(std::span<const std::byte> bytes);
/// The same with text in JSON, which arrives there as what it describes. It is not checked here.
bool set_result(std::string_view json);

}  // namespace hvd
