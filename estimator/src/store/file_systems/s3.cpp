#include <arrow/filesystem/s3fs.h>
#include <arrow/util/uri.h>
#include <fmt/format.h>

#include <hvd/core/error.hpp>

#include "store/arrow_status.hpp"
#include "store/file_system.hpp"
#include "store/option_reader.hpp"

namespace hvd::detail {

namespace {

// The limits of one attempt to reach a server. A request consists of a few attempts.
constexpr double kConnectSeconds = 5;
constexpr double kRequestSeconds = 30;
constexpr int kAttempts = 4;

/// Initialises Arrow's S3 for the process, and shuts it down before the process ends.
class S3Library {
 public:
  S3Library() {
    check(arrow::fs::EnsureS3Initialized(), "S3");
    // Arrow needs a global object to shut S3 down, and creates it with its first client. A client
    // is made here, so that this object is destroyed before Arrow's.
    auto options = arrow::fs::S3Options::Anonymous();
    options.region = "us-east-1";
    (void)arrow::fs::S3FileSystem::Make(options);
  }
  ~S3Library() { (void)arrow::fs::EnsureS3Finalized(); }
  S3Library(const S3Library&) = delete;
  S3Library& operator=(const S3Library&) = delete;
};

void begin_s3() { static const S3Library library; }

/// Adds the options in the URI's query, as in "?region=…&scheme=http&endpoint_override=…".
StorageOptions with_query(StorageOptions options, const arrow::util::Uri& uri,
                          const std::string& text) {
  for (const auto& item : take(uri.query_items(), text)) {
    if (!options.insert(item).second) {
      throw Error(
          Errc::invalid_argument,
          fmt::format("{}: '{}' is in the URI and among the storage options", text, item.first));
    }
  }
  return options;
}

void set_endpoint(OptionReader& options, arrow::fs::S3Options& to) {
  to.scheme = options.take("scheme").value_or(to.scheme);
  if (to.scheme != "http" && to.scheme != "https") options.fail("'scheme' is http or https");
  if (auto endpoint = options.take("endpoint_override")) to.endpoint_override = *endpoint;
  if (auto url = options.take("endpoint_url")) {
    const std::size_t colons = url->find("://");
    if (!to.endpoint_override.empty() || colons == std::string::npos) {
      options.fail("'endpoint_url' is http://host:port or https://host:port, and alone");
    }
    to.scheme = url->substr(0, colons);
    to.endpoint_override = url->substr(colons + 3);
    while (to.endpoint_override.ends_with('/')) to.endpoint_override.pop_back();
  }
}

void set_credentials(OptionReader& options, arrow::fs::S3Options& to) {
  options.need_all({"key", "secret"});
  const auto key = options.take("key");
  const auto secret = options.take("secret");
  const auto token = options.take("token");
  const bool anonymous = options.take_bool("anon");
  if (anonymous && key) options.fail("'anon' and 'key' exclude each other");
  if (token && !key) options.fail("'token' goes with 'key' and 'secret'");
  if (key) {
    to.ConfigureAccessKey(*key, *secret, token.value_or(""));
  } else if (anonymous) {
    to.ConfigureAnonymousCredentials();
  } else {
    to.ConfigureDefaultCredentials();
  }
}

}  // namespace

std::shared_ptr<arrow::fs::FileSystem> open_s3(const std::string& uri,
                                               const StorageOptions& options, std::string& path) {
  arrow::util::Uri parsed;
  check(parsed.Parse(uri), uri);
  const std::string bucket = parsed.host();
  if (bucket.empty()) throw Error(Errc::invalid_argument, fmt::format("{}: no bucket", uri));
  path = bucket + parsed.path();

  OptionReader reader("s3://", with_query(options, parsed, uri));
  const auto region = reader.take("region");
  begin_s3();
  arrow::fs::S3Options s3;
  s3.connect_timeout = kConnectSeconds;
  s3.request_timeout = kRequestSeconds;
  s3.retry_strategy = arrow::fs::S3RetryStrategy::GetAwsStandardRetryStrategy(kAttempts);
  set_endpoint(reader, s3);
  set_credentials(reader, s3);
  reader.finish();
  if (region) {
    s3.region = *region;
  } else if (s3.endpoint_override.empty()) {
    s3.region = take(arrow::fs::ResolveS3BucketRegion(bucket), uri);
  }
  return take(arrow::fs::S3FileSystem::Make(s3), uri);
}

}  // namespace hvd::detail
