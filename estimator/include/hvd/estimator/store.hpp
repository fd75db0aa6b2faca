// Declares the folder, named by a URI, that holds an estimator's data, checkpoints and results.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <hvd/core/types.hpp>

namespace hvd {

/// Options that a file system needs beside a URI, such as credentials and the address of a server.
/// Each scheme has these names:
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

/// A folder and its layout (docs/how-to/estimator.md). Paths are relative to the folder, and their
/// parts are separated by '/'. A path that contains ".." or begins with '/' throws
/// Errc::invalid_argument. No function is collective: any rank may call it, and the ranks have to
/// agree on who writes.
///
/// Copies are cheap and share the connection. Any thread may use it. A function that accesses the
/// file system throws Errc::resource, naming the URI, for a full disk, a missing permission, a
/// missing bucket, or a server that does not answer in time.
class EstimatorStore {
 public:
  /// `uri` is a path, or `file://`, `s3://`, `abfs://`, `abfss://`, `hdfs://`, `viewfs://` or
  /// `gs://`. If the folder does not exist, the first write makes it. Throws Errc::invalid_argument
  /// for an unknown scheme or option and for credentials inside the URI, and Errc::unsupported for
  /// a scheme that this build of Arrow lacks.
  [[nodiscard]] static EstimatorStore open(const std::string& uri,
                                           EstimatorStoreOptions options = {});

  /// Returns the URI that was passed to `open`, with an absolute path.
  [[nodiscard]] const std::string& uri() const noexcept;
  [[nodiscard]] const EstimatorStoreOptions& options() const noexcept;

  /// Return `intermediate_train_data.ID` and `intermediate_val_data.ID`. They throw what
  /// `checkpoint` throws.
  [[nodiscard]] std::string train_data(const std::string& id) const;
  [[nodiscard]] std::string val_data(const std::string& id) const;
  /// Return `runs/RUN_ID`, and the folders `checkpoint` and `logs` in it. They throw
  /// Errc::invalid_argument when `run_id` is empty, "." or "..", contains a '/' or a control
  /// character, or has more than 200 bytes.
  [[nodiscard]] std::string run(const std::string& run_id) const;
  [[nodiscard]] std::string checkpoint(const std::string& run_id) const;
  [[nodiscard]] std::string logs(const std::string& run_id) const;
  /// Returns the URI of a path of this store, for a reader elsewhere.
  [[nodiscard]] std::string uri_of(const std::string& path) const;

  /// Makes the folders above the file and writes the file: in a local folder and on HDFS under
  /// another name, which it changes at the end, and in an object store as one object. When it
  /// throws, the old file still exists.
  void write(const std::string& path, std::span<const std::byte> bytes) const;
  void write(const std::string& path, const std::string& text) const;
  /// Returns the whole file, or nothing when there is none.
  [[nodiscard]] std::optional<Bytes> read(const std::string& path) const;
  /// Returns whether there is such a file or folder. In an object store, a folder exists only while
  /// it contains a file.
  [[nodiscard]] bool exists(const std::string& path) const;
  /// Returns the sorted names of the files and folders directly in a folder. The list is empty when
  /// there is no such folder.
  [[nodiscard]] std::vector<std::string> list(const std::string& path) const;
  /// Removes a file, or a folder and everything in it. Does nothing when there is none.
  void remove(const std::string& path) const;

 private:
  struct State;
  explicit EstimatorStore(std::shared_ptr<const State> state) : state_(std::move(state)) {}

  std::shared_ptr<const State> state_;
};

}  // namespace hvd
