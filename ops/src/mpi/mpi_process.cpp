#include "mpi/mpi_process.hpp"

#include <atomic>
#include <cstdlib>
#include <string>

#include <fmt/format.h>
#include <mpi.h>

#include <hvd/core/error.hpp>

namespace hvd::detail {
namespace {

/// Holds the state of the process that MPI itself does not report. It is never destroyed, because
/// the exit handler and the last user may end in either order.
struct Process {
  std::atomic<int> users{0};
  std::atomic<bool> alone{false};  ///< only hvd calls MPI
  std::atomic<bool> failed{false};
  std::atomic<bool> exiting{false};  ///< the exit handler has run
};

Process& process() noexcept {
  static Process state;
  return state;
}

bool initialized() noexcept {
  int flag = 0;
  MPI_Initialized(&flag);
  return flag != 0;
}

bool finalized() noexcept {
  int flag = 0;
  MPI_Finalized(&flag);
  return flag != 0;
}

int thread_level() noexcept {
  int level = MPI_THREAD_SINGLE;
  MPI_Query_thread(&level);
  return level;
}

std::string level_name(int level) {
  switch (level) {
    case MPI_THREAD_SINGLE:
      return "MPI_THREAD_SINGLE";
    case MPI_THREAD_FUNNELED:
      return "MPI_THREAD_FUNNELED";
    case MPI_THREAD_SERIALIZED:
      return "MPI_THREAD_SERIALIZED";
    case MPI_THREAD_MULTIPLE:
      return "MPI_THREAD_MULTIPLE";
    default:
      return fmt::format("thread level {}", level);
  }
}

void finalize_if_last() noexcept {
  const Process& state = process();
  if (state.exiting && state.users == 0 && !state.failed && !finalized()) MPI_Finalize();
}

void at_exit() {
  process().exiting = true;
  finalize_if_last();
}

void initialize(int wanted) {
  int level = MPI_THREAD_SINGLE;  // may be lower than what is wanted: see `require_level`
  const int result = MPI_Init_thread(nullptr, nullptr, wanted, &level);
  if (result != MPI_SUCCESS) throw Error(Errc::unsupported, "MPI_Init_thread failed");
  std::atexit(at_exit);
}

/// Throws when MPI was finalised or has failed.
void require_usable() {
  if (process().failed) {
    throw Error(Errc::unsupported, "MPI cannot be used again in a process where it has failed");
  }
  if (finalized()) throw Error(Errc::unsupported, "MPI was finalised before hvd was initialised");
}

/// Throws when hvd's threads may not call MPI.
void require_level() {
  const int level = thread_level();
  if (process().alone && level < MPI_THREAD_SERIALIZED) {
    throw Error(
        Errc::unsupported,
        fmt::format("this MPI offers {} only, hvd needs MPI_THREAD_SERIALIZED", level_name(level)));
  }
  if (!process().alone && level < MPI_THREAD_MULTIPLE) {
    throw Error(
        Errc::unsupported,
        fmt::format("MPI provides {} only. hvd calls MPI from a thread of its own while the "
                    "program may call it too, which needs MPI_THREAD_MULTIPLE",
                    level_name(level)));
  }
}

void require_no_other_user() {
  if (process().users == 0 || thread_level() >= MPI_THREAD_MULTIPLE) return;
  throw Error(Errc::unsupported,
              fmt::format("another context of this process uses MPI, which has {}",
                          level_name(thread_level())));
}

}  // namespace

MpiUse::MpiUse() {
  Process& state = process();
  require_usable();
  if (!initialized()) {
    // Our calls come from one thread at a time, but not always from the same one.
    initialize(MPI_THREAD_SERIALIZED);
    state.alone = true;
  }
  require_level();
  require_no_other_user();
  ++state.users;
}

MpiUse::~MpiUse() {
  --process().users;
  finalize_if_last();
}

void MpiUse::abort() noexcept {
  mark_failed();
  failure_.abort();
}

bool MpiUse::shared_with_program() const noexcept { return !process().alone; }

void MpiUse::mark_failed() noexcept { process().failed = true; }

bool MpiUse::alive() noexcept { return !process().failed && !finalized(); }

void MpiUse::require_here() {
  require_usable();
  process().alone = false;  // the program has a communicator, so it may call MPI too
  if (!initialized()) return initialize(MPI_THREAD_MULTIPLE);
  int main_thread = 0;
  MPI_Is_thread_main(&main_thread);
  if (thread_level() <= MPI_THREAD_FUNNELED && main_thread == 0) {
    throw Error(Errc::unsupported,
                fmt::format("MPI has {}: only the thread that initialised it may call hvd::init "
                            "with a communicator",
                            level_name(thread_level())));
  }
  require_no_other_user();
}

}  // namespace hvd::detail
