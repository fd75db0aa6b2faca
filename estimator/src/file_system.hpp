// URIs and the Arrow file systems behind them.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include <arrow/filesystem/filesystem.h>

#include <hvd/estimator/store.hpp>

namespace hvd {

enum class Scheme { local, s3, azure, gcs, hdfs };

/// A place in a file system.
struct Location {
  std::shared_ptr<arrow::fs::FileSystem> file_system;
  std::string path;  ///< in it, without a '/' at the end
  std::string uri;   ///< for people and other readers; absolute, without a '/' at the end
  Scheme scheme = Scheme::local;

  /// Of a path below, '/' between.
  [[nodiscard]] std::string path_of(const std::string& below) const;
  /// As a URI's part: percent-encoded when there is a scheme, before a query.
  [[nodiscard]] std::string uri_of(const std::string& below) const;
};

/// Throws as `EstimatorStore::open`. Reaches out only where a scheme must (HDFS; S3 without a
/// region).
[[nodiscard]] Location locate(const std::string& uri, const StorageOptions& options);

/// Those of one scheme; the path in it goes to `path`. Sibling files file_systems/x.cpp, no_x.cpp.
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
/// Errc::unsupported.
[[noreturn]] void refuse_scheme(const std::string& uri, const std::string& part);

}  // namespace hvd
