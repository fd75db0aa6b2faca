#include <limits>

#include <arrow/filesystem/hdfs.h>
#include <arrow/util/uri.h>

#include "store/arrow_status.hpp"
#include "store/file_system.hpp"
#include "store/option_reader.hpp"

namespace hvd::detail {

std::shared_ptr<arrow::fs::FileSystem> open_hdfs(const std::string& uri,
                                                 const StorageOptions& options, std::string& path) {
  OptionReader reader("hdfs://", options);
  arrow::util::Uri parsed;
  check(parsed.Parse(uri), uri);
  path = parsed.path();
  auto hdfs = take(arrow::fs::HdfsOptions::FromUri(parsed), uri);
  const auto host = reader.take("host");
  const auto port = reader.take_int("port");
  if (host || port) hdfs.ConfigureEndPoint(host.value_or(hdfs.host()), port.value_or(hdfs.port()));
  if (auto user = reader.take("user")) hdfs.ConfigureUser(*user);
  if (auto ticket = reader.take("kerb_ticket")) hdfs.ConfigureKerberosTicketCachePath(*ticket);
  if (auto copies = reader.take_int("replication")) {
    if (*copies > std::numeric_limits<std::int16_t>::max())
      reader.fail("'replication' is too large");
    hdfs.ConfigureReplication(static_cast<std::int16_t>(*copies));
  }
  reader.finish();
  // Arrow loads libhdfs and a Java virtual machine by name; its error says which one is missing.
  return take(arrow::fs::HadoopFileSystem::Make(hdfs), uri);
}

}  // namespace hvd::detail
