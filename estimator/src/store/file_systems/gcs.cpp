#include <arrow/filesystem/gcsfs.h>

#include "store/arrow_status.hpp"
#include "store/file_system.hpp"
#include "store/option_reader.hpp"

namespace hvd::detail {

namespace {

constexpr double kRetrySeconds = 30;  // the default of the library is 15 minutes

}  // namespace

std::shared_ptr<arrow::fs::FileSystem> open_gcs(const std::string& uri,
                                                const StorageOptions& options, std::string& path) {
  OptionReader reader("gs://", options);
  const auto from_uri = take(arrow::fs::GcsOptions::FromUri(uri, &path), uri);
  const auto json = reader.take("json_credentials");
  const bool anonymous = reader.take_bool("anon");
  if (json && anonymous) reader.fail("'anon' and 'json_credentials' exclude each other");

  arrow::fs::GcsOptions gcs = from_uri;
  if (json)
    gcs.credentials = arrow::fs::GcsOptions::FromServiceAccountCredentials(*json).credentials;
  if (anonymous) {
    const auto without = arrow::fs::GcsOptions::Anonymous();
    gcs.credentials = without.credentials;
    gcs.scheme = without.scheme;
  }
  if (auto endpoint = reader.take("endpoint_override")) gcs.endpoint_override = *endpoint;
  if (auto scheme = reader.take("scheme")) gcs.scheme = *scheme;
  if (auto project = reader.take("project")) gcs.project_id = *project;
  gcs.retry_limit_seconds = gcs.retry_limit_seconds.value_or(kRetrySeconds);
  reader.finish();
  return take(arrow::fs::GcsFileSystem::Make(gcs), uri);
}

}  // namespace hvd::detail
