// Recognises sockets that a rank has inherited from its launcher.
#pragma once

namespace hvd::detail {

/// Returns whether `fd` is a packet socket between processes of this user. A wrapper script may
/// have closed the launcher's socket, and another file may have its number.
[[nodiscard]] bool is_launcher_socket(int fd) noexcept;

}  // namespace hvd::detail
