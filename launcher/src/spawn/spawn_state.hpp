// Encodes what a process of hvd::spawn is told about the calls that led to it, and what it reports.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <hvd/core/error.hpp>
#include <hvd/core/fd.hpp>
#include <hvd/core/wire.hpp>
#include <hvd/spawn.hpp>

namespace hvd::launcher {

/// How a call ended, for processes of later calls, which run past it again.
struct SpawnOutcome {
  enum class Kind : std::uint8_t { open, results, process_error, error };
  Kind kind = Kind::open;  ///< open: it was not joined yet
  std::vector<Bytes> results{};
  ProcessError::End end{};
  Errc code = Errc::internal;  ///< of an error that is no process's
  std::string text{};
  std::vector<pid_t> pids{};
};

/// One call on the way from `main`, or from the function of the call above, to a process.
struct SpawnLevel {
  std::uint32_t call = 0;  ///< how many calls come before it on this level
  std::int32_t rank = 0;   ///< the process's, in it
  std::string file{};      ///< where it stands in the source
  std::int32_t line = 0;
  std::vector<SpawnOutcome> earlier{};  ///< of the calls before it
};
using SpawnPath = std::vector<SpawnLevel>;

[[nodiscard]] Bytes encode(const SpawnPath& path);
/// Throws Errc::protocol.
[[nodiscard]] SpawnPath decode_spawn_path(std::span<const std::byte> bytes);

/// What a process leaves for its parent.
struct SpawnReport {
  enum class Stage : std::uint8_t { before, running, returned, threw };
  Stage stage = Stage::before;  ///< before: it did not come to its call
  Bytes value{};                ///< what its function returned
  std::string text{};           ///< what it threw
};

/// An anonymous file in memory that closes on exec, with `content`. Throws Errc::resource.
[[nodiscard]] UniqueFd make_memory_file(const char* name, std::span<const std::byte> content);
/// Throws Errc::resource.
[[nodiscard]] Bytes read_memory_file(int fd);

/// Replaces what is in the file. Throws Errc::resource.
void write_report(int fd, SpawnReport::Stage stage, std::span<const std::byte> payload);
[[nodiscard]] SpawnReport read_report(int fd);

}  // namespace hvd::launcher
