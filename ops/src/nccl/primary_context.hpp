// Which devices this process uses already.
#pragma once

namespace hvd {

/// Whether it has a context on `device`, by which it occupies memory there. True where the driver
/// cannot be asked. Any thread.
[[nodiscard]] bool has_primary_context(int device) noexcept;

}  // namespace hvd
