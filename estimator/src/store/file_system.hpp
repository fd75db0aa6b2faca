// Opens the Arrow file system of a URI.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include <arrow/filesystem/filesystem.h>

#include <hvd/estimator/store.hpp>

namespace hvd::detail {

enum class Scheme { local, s3, azure, gcs, hdfs };

/// A file or folder of a file system.
struct Location {
  std::shared_ptr<arrow::fs::FileSystem> file_system;
  std::string path;  ///< the path in the file system, without a '/' at the end
  std::string uri;   ///< absolute, without a '/' at the end; for messages and other readers
  Scheme scheme = Scheme::local;

  /// Returns the location of a path below this one, whose parts are separated by '/'.
  [[nodiscard]] std::string path_of(const std::string& below) const;
  /// Returns the URI of this path. With a scheme, the path is percent-encoded; the query follows
  /// it.
  [[nodiscard]] std::string uri_of(const std::string& below) const;
};

/// The URI of a file, split into the URI of its folder and its name, which is decoded.
struct SplitUri {
  std::string folder;
  std::string name;
};

/// Throws Errc::invalid_argument when the name after the last '/' is empty.
[[nodiscard]] SplitUri split_uri(const std::string& uri);

/// Throws what `EstimatorStore::open` throws. Connects to a server only for HDFS, and for S3
/// without a region.
[[nodiscard]] Location locate(const std::string& uri, const StorageOptions& options);

/// There is one function for each scheme. Each sets `path` to the path in the file system. When
/// this Arrow lacks a scheme, its function comes from file_systems/no_<scheme>.cpp and throws.
[[nodiscard]] std::shared_ptr<arrow::fs::FileSystem> open_s3(const std::string& uri,
                                                             const StorageOptions& options,
                                                             std::string& path);
[[nodiscard]] std::shared_ptr<arrow::fs::FileSystem> open_azure(const std::string& uri,
                                                                const StorageOptions& options,
                                                                std::string& path);
[[nodiscard]] std::shared_ptr<arrow::fs::FileSystem> open_gcs(const std::string& uri,
                                                              const StorageOptions& options,
                                                              std::string& path);
[[nodiscard]] std::shared_ptr<arrow::fs::FileSystem> open_hdfs(const std::string& uri,
                                                               const StorageOptions& options,
                                                               std::string& path);
/// Throws Errc::unsupported.
[[noreturn]] void refuse_scheme(const std::string& uri, const std::string& part);

}  // namespace hvd::detail
