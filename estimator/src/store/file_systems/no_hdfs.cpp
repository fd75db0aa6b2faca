#include "store/file_system.hpp"

namespace hvd::detail {

std::shared_ptr<arrow::fs::FileSystem> open_hdfs(const std::string& uri, const StorageOptions&,
                                                 std::string&) {
  refuse_scheme(uri, "HDFS");
}

}  // namespace hvd::detail
