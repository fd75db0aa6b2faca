// Which GPU this rank takes, and whether NCCL can work with what all ranks took.
#pragma once

#include <optional>
#include <string>

namespace hvd {

class Session;

/// Collective. The device of this rank, `local rank % visible devices`; empty on every rank when
/// some rank sees no GPU or two ranks of a host would share one, with the reason logged.
[[nodiscard]] std::optional<int> choose_gpu(Session& session);

}  // namespace hvd
