// Notices the signals by which a user or a scheduler asks a program to stop.
#pragma once

namespace hvd::detail {

/// From the first call on, SIGTERM and SIGUSR1 call `request_stop`. A signal that the program
/// handles or ignores itself is left to the program. Any thread may call it.
void watch_stop_signals() noexcept;

/// Returns whether this process was asked to stop.
[[nodiscard]] bool process_was_asked_to_stop() noexcept;

}  // namespace hvd::detail
