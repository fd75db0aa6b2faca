#include <arrow/filesystem/azurefs.h>

#include "store/arrow_status.hpp"
#include "store/file_system.hpp"
#include "store/option_reader.hpp"

namespace hvd::detail {

namespace {

arrow::Status set_credentials(OptionReader& options, arrow::fs::AzureOptions& to) {
  options.need_all({"tenant_id", "client_id", "client_secret"});
  const auto key = options.take("account_key");
  const auto sas = options.take("sas_token");
  const auto tenant = options.take("tenant_id");
  const auto client = options.take("client_id");
  const auto secret = options.take("client_secret");
  const bool anonymous = options.take_bool("anon");
  if (int{key.has_value()} + int{sas.has_value()} + int{tenant.has_value()} + int{anonymous} > 1) {
    options.fail("give one of 'account_key', 'sas_token', 'client_secret' and 'anon'");
  }
  if (key) return to.ConfigureAccountKeyCredential(*key);
  if (sas) return to.ConfigureSASCredential(*sas);
  if (tenant) return to.ConfigureClientSecretCredential(*tenant, *client, *secret);
  if (anonymous) return to.ConfigureAnonymousCredential();
  return arrow::Status::OK();  // uses the URI's credentials, or those that the SDK finds
}

}  // namespace

std::shared_ptr<arrow::fs::FileSystem> open_azure(const std::string& uri,
                                                  const StorageOptions& options,
                                                  std::string& path) {
  OptionReader reader("abfs://", options);
  auto azure = take(arrow::fs::AzureOptions::FromUri(uri, &path), uri);
  if (auto name = reader.take("account_name")) azure.account_name = *name;
  if (auto host = reader.take("blob_storage_authority")) azure.blob_storage_authority = *host;
  if (auto host = reader.take("dfs_storage_authority")) azure.dfs_storage_authority = *host;
  if (auto scheme = reader.take("scheme")) {
    azure.blob_storage_scheme = *scheme;
    azure.dfs_storage_scheme = *scheme;
  }
  check(set_credentials(reader, azure), uri);
  reader.finish();
  return take(arrow::fs::AzureFileSystem::Make(azure), uri);
}

}  // namespace hvd::detail
