// Where an estimator's data, checkpoints and results lie: a folder of a file system, by URI.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <hvd/core/wire.hpp>

namespace hvd {

/// What a file system needs beside a URI: credentials and where it is. Names by scheme:
///   s3         `key`, `secret`, `token`, `anon`, `endpoint_url` (with scheme) or
///              `endpoint_override` (host:port), `region`, `scheme`
///   abfs(s)    `account_name`, `account_key`, `sas_token`, `tenant_id`, `client_id`,
///              `client_secret`, `anon`, `blob_storage_authority`, `dfs_storage_authority`,
///              `scheme`
///   gs         `anon`, `json_credentials`, `project`, `endpoint_override`, `scheme`
///   hdfs       `host`, `port`, `user`, `kerb_ticket`, `replication`
/// A local folder takes none. An unknown name is an error.
using StorageOptions = std::map<std::string, std::string>;

struct EstimatorStoreOptions {
  bool save_runs = true;  ///< keep the folder of a run after its fit succeeded
  StorageOptions storage_options = {};
};

/// A folder and its layout (docs/estimator.md). Paths are relative to that folder, with '/' between
/// their parts; one with "..", or that begins with '/', throws Errc::invalid_argument. Nothing here
/// is collective: any rank may call it, and the ranks agree among themselves who writes.
///
/// Cheap to copy; copies share the connection. Any thread. All that reaches the file system throws
/// Errc::resource naming the URI when it refuses: a full disk, no permission, no such bucket, or a
/// server that does not answer within the seconds that its client tries.
class EstimatorStore {
 public:
  /// `uri` is a path, or `file://`, `s3://`, `abfs://`, `abfss://`, `hdfs://`, `viewfs://` or
  /// `gs://`. A folder that is not there is made by the first write. Throws Errc::invalid_argument:
  /// an unknown scheme or option, credentials inside the URI; Errc::unsupported: a scheme that this
  /// Arrow was built without.
  [[nodiscard]] static EstimatorStore open(const std::string& uri,
                                           EstimatorStoreOptions options = {});

  /// As given to `open`, but for a relative path, which is absolute here.
  [[nodiscard]] const std::string& uri() const noexcept;
  [[nodiscard]] const EstimatorStoreOptions& options() const noexcept;

  /// `intermediate_train_data.<id>` and `intermediate_val_data.<id>`. Throws as `checkpoint`.
  [[nodiscard]] std::string train_data(const std::string& id) const;
  [[nodiscard]] std::string val_data(const std::string& id) const;
  /// `runs/<run_id>`, and in it `checkpoint` and `logs`. Throws Errc::invalid_argument when
  /// `run_id` is empty, ".", "..", has a '/' or a control character in it, or more than 200 bytes.
  [[nodiscard]] std::string run(const std::string& run_id) const;
  [[nodiscard]] std::string checkpoint(const std::string& run_id) const;
  [[nodiscard]] std::string logs(const std::string& run_id) const;
  /// The URI of a path of this store, for a reader elsewhere.
  [[nodiscard]] std::string uri_of(const std::string& path) const;

  /// Makes the folders above, then the file: under another name that is then changed (local, HDFS),
  /// or uploaded as one object. When it throws, the old file is still there.
  void write(const std::string& path, std::span<const std::byte> bytes) const;
  void write(const std::string& path, const std::string& text) const;
  /// The whole file; nothing when there is none.
  [[nodiscard]] std::optional<Bytes> read(const std::string& path) const;
  /// A file or a folder. (An object store has a folder while something lies in it.)
  [[nodiscard]] bool exists(const std::string& path) const;
  /// Names of the files and folders right in a folder, sorted; none when there is no such folder.
  [[nodiscard]] std::vector<std::string> list(const std::string& path) const;
  /// A file, or a folder with all that is in it; nothing happens when there is none.
  void remove(const std::string& path) const;

 private:
  struct State;
  explicit EstimatorStore(std::shared_ptr<const State> state) : state_(std::move(state)) {}

  std::shared_ptr<const State> state_;
};

}  // namespace hvd
