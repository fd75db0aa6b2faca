#include "store/file_system.hpp"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <map>
#include <set>

#include <arrow/filesystem/localfs.h>
#include <arrow/util/uri.h>
#include <fmt/format.h>

#include <hvd/core/error.hpp>
#include <hvd/core/internal/text.hpp>

#include "store/arrow_status.hpp"
#include "store/option_reader.hpp"

namespace hvd::detail {

namespace {

[[noreturn]] void refuse_uri(const std::string& uri, const std::string& why) {
  throw Error(Errc::invalid_argument, fmt::format("{}: {}", uri, why));
}

/// Returns the scheme before "://". Spark writes "file:/…", whose scheme is "file". A plain path
/// has an empty scheme.
std::string scheme_of(const std::string& uri) {
  const std::size_t colons = uri.find("://");
  if (colons != std::string::npos) return uri.substr(0, colons);
  return uri.rfind("file:/", 0) == 0 ? "file" : "";
}

std::string without_slashes_at_end(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

/// Encodes all characters but the unreserved ones (RFC 3986, section 2.3), '/' and '='.
std::string percent_encoded(const std::string& path) {
  std::string encoded;
  for (const char c : path) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x80 &&
        (std::isalnum(byte) != 0 || std::string_view("-._~/=").find(c) != std::string_view::npos)) {
      encoded += c;
    } else {
      encoded += fmt::format("%{:02X}", byte);
    }
  }
  return encoded;
}

/// Refuses a URI with "name:password@", because URIs appear in messages.
void refuse_credentials(const std::string& uri, const std::string& scheme) {
  const std::size_t begin = scheme.size() + 3;
  const std::string authority = uri.substr(begin, uri.find('/', begin) - begin);
  const std::size_t at = authority.rfind('@');
  if (at == std::string::npos) return;
  if (scheme == "s3" || scheme == "gs" || scheme == "gcs" ||
      authority.substr(0, at).find(':') != std::string::npos) {
    refuse_uri(fmt::format("{}://{}", scheme, uri.substr(begin + at + 1)),
               "credentials do not belong into a URI: pass them as storage options");
  }
}

/// Refuses a query with other names than these, because URIs appear in messages, and the query of
/// an Azure URI may have a signature or a secret. A percent-encoded name is not one of these.
void refuse_query(const std::string& uri, const std::string& scheme) {
  static const std::set<std::string_view> azure = {"blob_storage_authority",
                                                   "dfs_storage_authority", "enable_tls",
                                                   "credential_kind", "client_id"};
  static const std::map<std::string_view, std::set<std::string_view>> taken = {
      {"s3", {"region", "scheme", "endpoint_override"}}, {"abfs", azure}, {"abfss", azure}};
  const auto names = taken.find(scheme);
  const std::size_t query = uri.find('?');
  if (names == taken.end() || query == std::string::npos) return;
  for (const std::string_view item : split_at(std::string_view(uri).substr(query + 1), '&')) {
    const std::string_view name = item.substr(0, item.find('='));
    if (names->second.count(name) != 0) continue;
    refuse_uri(uri.substr(0, query),
               fmt::format("'{}' is not taken in a URI; pass it as a storage option", name));
  }
}

std::string local_path(const std::string& uri, const std::string& scheme) {
  if (uri.empty()) refuse_uri("''", "an empty path");
  if (scheme.empty()) {
    return std::filesystem::absolute(uri).lexically_normal().string();
  }
  arrow::util::Uri parsed;
  check(parsed.Parse(uri), uri);
  if (!parsed.host().empty() && parsed.host() != "localhost") {
    refuse_uri(uri, "a file URI names no host; it begins with file:///");
  }
  return parsed.path();
}

}  // namespace

std::string Location::path_of(const std::string& below) const {
  if (below.empty()) return path;
  return path.ends_with('/') ? path + below : fmt::format("{}/{}", path, below);
}

std::string Location::uri_of(const std::string& below) const {
  if (below.empty()) return uri;
  const std::size_t query = uri.find('?');
  if (scheme_of(uri).empty()) return path_of(below);
  return fmt::format("{}/{}{}", without_slashes_at_end(uri.substr(0, query)),
                     percent_encoded(below), query == std::string::npos ? "" : uri.substr(query));
}

SplitUri split_uri(const std::string& uri) {
  const bool has_scheme = !scheme_of(uri).empty();
  const std::size_t query = has_scheme ? std::min(uri.find('?'), uri.size()) : uri.size();
  const std::string path = uri.substr(0, query);
  const std::size_t slash = path.rfind('/');
  SplitUri split{".", path};
  if (slash != std::string::npos) split = {path.substr(0, slash), path.substr(slash + 1)};
  if (split.folder.empty()) split.folder = "/";
  split.folder += uri.substr(query);  // a query such as "?region=…" belongs to the folder
  if (has_scheme) split.name = arrow::util::UriUnescape(split.name);
  if (split.name.empty()) {
    throw Error(Errc::invalid_argument, fmt::format("'{}' names no file", uri));
  }
  return split;
}

void refuse_scheme(const std::string& uri, const std::string& part) {
  throw Error(Errc::unsupported, fmt::format("{}: this Arrow was built without {}", uri, part));
}

Location locate(const std::string& uri, const StorageOptions& options) {
  const std::string scheme = scheme_of(uri);
  Location location;
  if (scheme.empty() || scheme == "file") {
    OptionReader("a local folder", options).finish();
    location.path = without_slashes_at_end(local_path(uri, scheme));
    location.file_system = std::make_shared<arrow::fs::LocalFileSystem>();
    location.uri = scheme.empty() ? location.path : without_slashes_at_end(uri);
    return location;
  }
  refuse_credentials(uri, scheme);
  refuse_query(uri, scheme);
  location.uri = without_slashes_at_end(uri);
  if (scheme == "s3") {
    location.scheme = Scheme::s3;
    location.file_system = open_s3(location.uri, options, location.path);
  } else if (scheme == "abfs" || scheme == "abfss") {
    location.scheme = Scheme::azure;
    location.file_system = open_azure(location.uri, options, location.path);
  } else if (scheme == "gs" || scheme == "gcs") {
    location.scheme = Scheme::gcs;
    location.file_system = open_gcs(location.uri, options, location.path);
  } else if (scheme == "hdfs" || scheme == "viewfs") {
    location.scheme = Scheme::hdfs;
    location.file_system = open_hdfs(location.uri, options, location.path);
  } else {
    refuse_uri(uri,
               fmt::format("unknown scheme '{}' (known: a path, file, s3, abfs, abfss, gs, hdfs, "
                           "viewfs)",
                           scheme));
  }
  location.path = without_slashes_at_end(std::move(location.path));
  return location;
}

}  // namespace hvd::detail
