#include "spawn/spawn_state.hpp"

#include <cerrno>
#include <utility>

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <hvd/core/internal/text.hpp>

#include "base/field_codec.hpp"
#include "base/text.hpp"

namespace hvd::launcher {

template <>
constexpr SpawnOutcome::Kind kLast<SpawnOutcome::Kind> = SpawnOutcome::Kind::error;
template <>
constexpr Errc kLast<Errc> = Errc::internal;

void fields(Is<SpawnOutcome> auto& outcome, auto& codec) {
  auto& end = outcome.end;
  codec(outcome.kind, outcome.results, end.rank, end.pid, end.text, end.exit_code, end.signal,
        outcome.code, outcome.text, outcome.pids);
}

void fields(Is<SpawnLevel> auto& level, auto& codec) {
  codec(level.call, level.rank, level.file, level.line, level.earlier);
  codec.check(level.earlier.size() == level.call, "calls without an outcome");
}

namespace {

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
  FieldEncoder encoder(to);
  encoder(path);
  return to.take();
}

SpawnPath decode_spawn_path(std::span<const std::byte> bytes) {
  WireReader from(bytes, "state of hvd::spawn");
  SpawnPath path;
  FieldDecoder decoder(from);
  decoder(path);
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
