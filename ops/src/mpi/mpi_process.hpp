// MPI's life in this process, which is MPI's to have once only: no library can start it again.
#pragma once

namespace hvd {

/// Held by everything that calls MPI. The first one initialises MPI when the program has not; it
/// stays initialised through `shutdown()` and another `init()`, and is finalised when the process
/// exits, or when the last user ends if that is later. Not at all after a failure, when
/// MPI_Finalize would wait for ranks that are gone. An MPI that the program initialised is the
/// program's to end.
class MpiUse {
 public:
  /// User's thread. Throws Errc::unsupported, saying why MPI cannot be called from a thread of
  /// ours, or not any more.
  MpiUse();
  ~MpiUse();
  MpiUse(const MpiUse&) = delete;
  MpiUse& operator=(const MpiUse&) = delete;

  /// Whether other code of the program may be inside MPI at the same time.
  [[nodiscard]] bool shared_with_program() const noexcept;
  /// A call was given up: MPI holds on to its buffers and must neither be used nor finalised.
  static void mark_failed() noexcept;
  /// Whether handles may still be freed.
  [[nodiscard]] static bool alive() noexcept;
  /// For a call of MPI on the user's thread, inside a call that the program made: initialises MPI
  /// when the program has not. Every thread level that allows this thread will do. Throws
  /// Errc::unsupported.
  static void require_here();
};

}  // namespace hvd
