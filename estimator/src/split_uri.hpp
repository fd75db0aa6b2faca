// A file's URI as a store's and a name in it.
#pragma once

#include <algorithm>
#include <string>

#include <fmt/format.h>

#include <hvd/core/error.hpp>

namespace hvd {

struct SplitUri {
  std::string folder;
  std::string name;
};

/// Throws Errc::invalid_argument when nothing is behind the last '/'.
[[nodiscard]] inline SplitUri split_uri(const std::string& uri) {
  const bool has_scheme = uri.find("://") != std::string::npos;
  const std::size_t query = has_scheme ? std::min(uri.find('?'), uri.size()) : uri.size();
  const std::string path = uri.substr(0, query);
  const std::size_t slash = path.rfind('/');
  SplitUri split{".", path};
  if (slash != std::string::npos) split = {path.substr(0, slash), path.substr(slash + 1)};
  if (split.folder.empty()) split.folder = "/";
  split.folder += uri.substr(query);  // "?region=…" is the store's
  if (split.name.empty()) {
    throw Error(Errc::invalid_argument, fmt::format("'{}' names no file", uri));
  }
  return split;
}

}  // namespace hvd
