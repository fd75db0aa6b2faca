// Manages the initialisation and finalisation of MPI, which a process can do only once.
#pragma once

#include <atomic>

#include "transport/failure.hpp"

namespace hvd::detail {

/// Every object that calls MPI holds an MpiUse. The first one initialises MPI unless the program
/// has done so. MPI then stays initialised through `shutdown()` and another `init()`, and is
/// finalised when the process exits, or when the last holder ends if that is later. After a failure
/// it is not finalised, because MPI_Finalize would wait for ranks that have ended. A program that
/// initialised MPI finalises it.
class MpiUse {
 public:
  /// Only the user's thread may call it. Throws Errc::unsupported with the reason when MPI cannot
  /// be called from the library's threads, or has already been finalized.
  MpiUse();
  ~MpiUse();
  MpiUse(const MpiUse&) = delete;
  MpiUse& operator=(const MpiUse&) = delete;

  /// Runs `body`, which calls MPI, unless a call of an object that shares this use has failed or
  /// `abort` was called: then it throws the first error again. One thread at a time may call it.
  template <class Body>
  void guard(Body body) {
    try {
      failure_.guard(body);
    } catch (...) {
      mark_failed();
      throw;
    }
  }
  /// Makes a running `guard` throw Errc::aborted soon, and every later one the first error. MPI is
  /// then never finalised, even if nothing runs, since MPI_Finalize would wait for lost ranks. Any
  /// thread may call it.
  void abort() noexcept;
  /// Returns the flag that `abort` sets, for a Watch.
  [[nodiscard]] const std::atomic<bool>& abort_flag() const noexcept {
    return failure_.abort_flag();
  }

  /// Tells whether other code of the program may be inside MPI at the same time.
  [[nodiscard]] bool shared_with_program() const noexcept;
  /// Records that a call was given up: MPI keeps its buffers and must neither be used nor
  /// finalised.
  static void mark_failed() noexcept;
  /// Tells whether handles may still be freed.
  [[nodiscard]] static bool alive() noexcept;
  /// Prepares a call of MPI on the user's thread, inside a call of the program: initialises MPI
  /// unless the program has done so. Any thread level that allows this thread suffices. Throws
  /// Errc::unsupported.
  static void require_here();

 private:
  Failure failure_;
};

}  // namespace hvd::detail
