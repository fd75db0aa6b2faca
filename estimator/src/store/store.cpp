#include <algorithm>
#include <filesystem>
#include <string_view>
#include <system_error>

#include <arrow/buffer.h>
#include <arrow/io/interfaces.h>
#include <fmt/format.h>
#include <unistd.h>

#include <hvd/core/error.hpp>
#include <hvd/core/internal/text.hpp>
#include <hvd/estimator/store.hpp>

#include "state/atomic_file.hpp"
#include "store/arrow_status.hpp"
#include "store/file_system.hpp"

namespace hvd {

using namespace detail;

struct EstimatorStore::State {
  Location location;
  EstimatorStoreOptions options;
};

namespace {

constexpr std::size_t kLongestId = 200;

void require_id(const char* what, const std::string& id) {
  const bool bad = std::any_of(id.begin(), id.end(), [](unsigned char c) {
    return c == '/' || c == '\\' || c < ' ' || c == 0x7f;
  });
  if (id.empty() || id == "." || id == ".." || bad || id.size() > kLongestId) {
    throw Error(Errc::invalid_argument,
                fmt::format("{} '{}': not empty, '.' or '..', without slashes and control "
                            "characters, at most {} bytes",
                            what, id.substr(0, kLongestId), kLongestId));
  }
}

/// Returns the path. Throws unless its parts are separated by one '/' and do not lead out of the
/// store.
const std::string& checked(const std::string& path, bool may_be_empty = false) {
  if (path.empty() && may_be_empty) return path;
  std::string_view rest = path;
  while (true) {
    const std::size_t slash = rest.find('/');
    const std::string_view part = rest.substr(0, slash);
    if (part.empty() || part == "." || part == "..") {
      throw Error(Errc::invalid_argument,
                  fmt::format("'{}' is no path in a store: relative, without '.', '..', and "
                              "slashes at its ends",
                              path));
    }
    if (slash == std::string_view::npos) return path;
    rest.remove_prefix(slash + 1);
  }
}

/// Writes the bytes as one object, which exists once this returns, and does not when it throws.
void write_object(arrow::fs::FileSystem& to, const std::string& path, const std::string& uri,
                  std::span<const std::byte> bytes) {
  const auto stream = take(to.OpenOutputStream(path), uri);
  arrow::Status status = stream->Write(bytes.data(), static_cast<std::int64_t>(bytes.size()));
  if (status.ok()) status = stream->Close();
  if (!status.ok()) {
    (void)stream->Abort();  // otherwise its destructor would upload what was written so far
    check(status, fmt::format("cannot write {}", uri));
  }
}

/// Writes another file and renames it. HDFS renames atomically, but not over an existing file, so
/// for a moment there is neither the old nor the new one.
void write_and_rename(arrow::fs::FileSystem& to, const std::string& path, const std::string& uri,
                      std::span<const std::byte> bytes) {
  const std::string beside = fmt::format("{}.tmp.{}", path, ::getpid());
  try {
    write_object(to, beside, uri, bytes);
    const auto old = take(to.GetFileInfo(path), uri);
    if (old.IsFile()) check(to.DeleteFile(path), fmt::format("cannot replace {}", uri));
    check(to.Move(beside, path), fmt::format("cannot write {}", uri));
  } catch (const Error&) {
    (void)to.DeleteFile(beside);
    throw;
  }
}

void write_local(const std::filesystem::path& path, std::span<const std::byte> bytes) {
  std::error_code error;
  std::filesystem::create_directories(path.parent_path(), error);
  if (error) {
    throw Error(Errc::resource, fmt::format("cannot make the folder {}: {}",
                                            path.parent_path().string(), error.message()));
  }
  write_atomically(path, bytes);
}

std::string parent_of(const std::string& path) { return path.substr(0, path.rfind('/')); }

}  // namespace

EstimatorStore EstimatorStore::open(const std::string& uri, EstimatorStoreOptions options) {
  Location location = locate(uri, options.storage_options);
  return EstimatorStore(
      std::make_shared<const State>(State{std::move(location), std::move(options)}));
}

const std::string& EstimatorStore::uri() const noexcept { return state_->location.uri; }
const EstimatorStoreOptions& EstimatorStore::options() const noexcept { return state_->options; }

std::string EstimatorStore::train_data(const std::string& id) const {
  require_id("id of data", id);
  return fmt::format("intermediate_train_data.{}", id);
}

std::string EstimatorStore::val_data(const std::string& id) const {
  require_id("id of data", id);
  return fmt::format("intermediate_val_data.{}", id);
}

std::string EstimatorStore::run(const std::string& run_id) const {
  require_id("run_id", run_id);
  return fmt::format("runs/{}", run_id);
}

std::string EstimatorStore::checkpoint(const std::string& run_id) const {
  return fmt::format("{}/checkpoint", run(run_id));
}

std::string EstimatorStore::logs(const std::string& run_id) const {
  return fmt::format("{}/logs", run(run_id));
}

std::string EstimatorStore::uri_of(const std::string& path) const {
  return state_->location.uri_of(checked(path, /*may_be_empty=*/true));
}

void EstimatorStore::write(const std::string& path, std::span<const std::byte> bytes) const {
  const Location& location = state_->location;
  const std::string uri = uri_of(checked(path));
  const std::string target = location.path_of(path);
  switch (location.scheme) {
    case Scheme::local:
      write_local(target, bytes);
      return;
    case Scheme::hdfs:
      check(location.file_system->CreateDir(parent_of(target), /*recursive=*/true), uri);
      write_and_rename(*location.file_system, target, uri, bytes);
      return;
    case Scheme::s3:
    case Scheme::azure:
    case Scheme::gcs:
      write_object(*location.file_system, target, uri, bytes);
      return;
  }
}

void EstimatorStore::write(const std::string& path, const std::string& text) const {
  write(path, detail::bytes_of(text));
}

std::optional<Bytes> EstimatorStore::read(const std::string& path) const {
  const Location& location = state_->location;
  const std::string uri = uri_of(checked(path));
  const auto info = take(location.file_system->GetFileInfo(location.path_of(path)), uri);
  if (info.type() == arrow::fs::FileType::NotFound) return std::nullopt;
  if (!info.IsFile()) throw Error(Errc::resource, fmt::format("cannot read {}: not a file", uri));
  const auto file = take(location.file_system->OpenInputFile(info), uri);
  const std::int64_t size = take(file->GetSize(), uri);
  Bytes bytes(static_cast<std::size_t>(size));
  const std::int64_t got = take(file->ReadAt(0, size, bytes.data()), uri);
  if (got != size) {
    throw Error(Errc::resource, fmt::format("cannot read {}: {} of {} bytes came", uri, got, size));
  }
  return bytes;
}

bool EstimatorStore::exists(const std::string& path) const {
  const Location& location = state_->location;
  const std::string uri = uri_of(checked(path, /*may_be_empty=*/true));
  return take(location.file_system->GetFileInfo(location.path_of(path)), uri).type() !=
         arrow::fs::FileType::NotFound;
}

std::vector<std::string> EstimatorStore::list(const std::string& path) const {
  const Location& location = state_->location;
  const std::string uri = uri_of(checked(path, /*may_be_empty=*/true));
  arrow::fs::FileSelector selector;
  selector.base_dir = location.path_of(path);
  selector.allow_not_found = true;
  std::vector<std::string> names;
  for (const auto& info : take(location.file_system->GetFileInfo(selector), uri)) {
    names.push_back(info.base_name());
  }
  std::sort(names.begin(), names.end());
  return names;
}

void EstimatorStore::remove(const std::string& path) const {
  const Location& location = state_->location;
  const std::string uri = uri_of(checked(path));
  const std::string target = location.path_of(path);
  const auto info = take(location.file_system->GetFileInfo(target), uri);
  if (info.type() == arrow::fs::FileType::NotFound) return;
  check(info.IsDirectory() ? location.file_system->DeleteDir(target)
                           : location.file_system->DeleteFile(target),
        fmt::format("cannot remove {}", uri));
}

}  // namespace hvd
