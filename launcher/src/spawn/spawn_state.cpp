#include "spawn/spawn_state.hpp"

#include <cerrno>
#include <limits>
#include <utility>

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <hvd/core/internal/text.hpp>

#include "base/text.hpp"

namespace hvd::launcher {
namespace {

constexpr std::size_t kNoLimit = std::numeric_limits<std::uint32_t>::max();

void write(WireWriter& to, const SpawnOutcome& outcome) {
  to.u8(static_cast<std::uint8_t>(outcome.kind));
  to.u32(static_cast<std::uint32_t>(outcome.results.size()));
  for (const Bytes& result : outcome.results) to.blob(result);
  to.i32(outcome.end.rank);
  to.i32(outcome.end.pid);
  to.text(outcome.end.text);
  to.i32(outcome.end.exit_code);
  to.i32(outcome.end.signal);
  to.u8(static_cast<std::uint8_t>(outcome.code));
  to.text(outcome.text);
  to.u32(static_cast<std::uint32_t>(outcome.pids.size()));
  for (const pid_t pid : outcome.pids) to.i32(pid);
}

SpawnOutcome read_outcome(WireReader& from) {
  SpawnOutcome outcome;
  const auto kind = from.u8();
  if (kind > static_cast<std::uint8_t>(SpawnOutcome::Kind::error)) from.fail("no such outcome");
  outcome.kind = static_cast<SpawnOutcome::Kind>(kind);
  outcome.results.resize(from.count(sizeof(std::uint32_t)));
  for (Bytes& result : outcome.results) {
    const auto bytes = from.blob(kNoLimit);
    result.assign(bytes.begin(), bytes.end());
  }
  outcome.end.rank = from.i32();
  outcome.end.pid = from.i32();
  outcome.end.text = from.text(kNoLimit);
  outcome.end.exit_code = from.i32();
  outcome.end.signal = from.i32();
  const auto code = from.u8();
  if (code > static_cast<std::uint8_t>(Errc::internal)) from.fail("no such error");
  outcome.code = static_cast<Errc>(code);
  outcome.text = from.text(kNoLimit);
  outcome.pids.resize(from.count(sizeof(std::int32_t)));
  for (pid_t& pid : outcome.pids) pid = from.i32();
  return outcome;
}

[[noreturn]] void refuse(const char* what) {
  throw Error(Errc::resource, fmt::format("{}: {}", what, error_text(errno)));
}

void write_all(int fd, std::span<const std::byte> bytes, off_t at) {
  while (!bytes.empty()) {
    const ssize_t size = ::pwrite(fd, bytes.data(), bytes.size(), at);
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) refuse("no memory for what a process hands over");
    bytes = bytes.subspan(static_cast<std::size_t>(size));
    at += size;
  }
}

}  // namespace

Bytes encode(const SpawnPath& path) {
  WireWriter to;
  to.u32(static_cast<std::uint32_t>(path.size()));
  for (const SpawnLevel& level : path) {
    to.u32(level.call);
    to.i32(level.rank);
    to.text(level.file);
    to.i32(level.line);
    to.u32(static_cast<std::uint32_t>(level.earlier.size()));
    for (const SpawnOutcome& outcome : level.earlier) write(to, outcome);
  }
  return to.take();
}

SpawnPath decode_spawn_path(std::span<const std::byte> bytes) {
  WireReader from(bytes, "state of hvd::spawn");
  SpawnPath path(from.count(5 * sizeof(std::uint32_t)));
  for (SpawnLevel& level : path) {
    level.call = from.u32();
    level.rank = from.i32();
    level.file = from.text(kNoLimit);
    level.line = from.i32();
    level.earlier.resize(from.count(sizeof(std::uint32_t)));
    for (SpawnOutcome& outcome : level.earlier) outcome = read_outcome(from);
    if (level.earlier.size() != level.call) from.fail("calls without an outcome");
  }
  from.finish();
  return path;
}

UniqueFd make_memory_file(const char* name, std::span<const std::byte> content) {
  UniqueFd fd(::memfd_create(name, MFD_CLOEXEC));
  if (!fd) refuse("cannot create a file in memory");
  write_all(fd.get(), content, 0);
  return fd;
}

Bytes read_memory_file(int fd) {
  struct stat status {};
  if (::fstat(fd, &status) != 0) refuse("cannot read a file in memory");
  Bytes bytes(static_cast<std::size_t>(status.st_size));
  for (std::size_t done = 0; done < bytes.size();) {
    const ssize_t size =
        ::pread(fd, bytes.data() + done, bytes.size() - done, static_cast<off_t>(done));
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) refuse("cannot read a file in memory");
    done += static_cast<std::size_t>(size);
  }
  return bytes;
}

void write_report(int fd, SpawnReport::Stage stage, std::span<const std::byte> payload) {
  // The stage is written last, so that a process that dies in between does not count as returned.
  write_all(fd, payload, 1);
  const auto first = static_cast<std::byte>(stage);
  write_all(fd, {&first, 1}, 0);
}

SpawnReport read_report(int fd) {
  Bytes bytes = read_memory_file(fd);
  SpawnReport report;
  if (bytes.empty() || bytes.front() > static_cast<std::byte>(SpawnReport::Stage::threw)) {
    return report;
  }
  report.stage = static_cast<SpawnReport::Stage>(bytes.front());
  bytes.erase(bytes.begin());
  if (report.stage == SpawnReport::Stage::threw) {
    report.text = detail::text_of(bytes);
  } else {
    report.value = std::move(bytes);
  }
  return report;
}

}  // namespace hvd::launcher
