// Declares how a program asks its whole job to stop.
#pragma once

namespace hvd {

/// Makes `Context::stop_requested` return true on all ranks. Any thread may call it, and so may a
/// signal handler. The request lasts until the process ends.
void request_stop() noexcept;

}  // namespace hvd
